// Common parts of the kernels that use oneDNN: one engine, primitives that each thread caches by
// shape, single-threaded calls, and translation of the library's failures into Error(internal).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "base/dtype.h"

namespace tutti::training::onednn {

const dnnl::engine& engine();

// Returns the type in which oneDNN computes: bf16 for bf16, f32 for all other types.
dnnl::memory::data_type data_type(DType type);

// Returns true if oneDNN computes in this type on this processor. Otherwise f16, and bf16 without
// AVX-512, must be converted to f32; oneDNN does not support f64.
bool computes_in(DType type);

// Describes a primitive of kind P for `problem`; a backward primitive also takes its forward
// primitive. oneDNN 2 needs an object for the problem, P::desc; oneDNN 3 does not.
template <typename P, typename... Problem>
typename P::primitive_desc primitive_descriptor(const dnnl::primitive_attr& attributes,
                                                const Problem&... problem) {
  if constexpr (requires { typename P::desc; }) {
    return {typename P::desc(problem...), attributes, engine()};
  } else {
    return {engine(), problem..., attributes};
  }
}
// Describes the primitive with the implementation of that name, or with oneDNN's first choice if
// there is none of that name.
template <typename P, typename... Problem>
typename P::primitive_desc primitive_descriptor_by(const std::string& implementation,
                                                   const dnnl::primitive_attr& attributes,
                                                   const Problem&... problem) {
  const auto find = [&](auto descriptor) {
    const auto first = descriptor;
    while (descriptor.impl_info_str() != implementation) {
      if (!descriptor.next_impl()) return first;
    }
    return descriptor;
  };
  if constexpr (requires { typename P::desc; }) {
    const typename P::desc kept(problem...);  // must stay alive because next_impl() reads it
    return find(typename P::primitive_desc(kept, attributes, engine()));
  } else {
    return find(primitive_descriptor<P>(attributes, problem...));
  }
}
template <typename P, typename Forward, typename... Problem>
typename P::primitive_desc backward_descriptor(const Forward& forward, const Problem&... problem) {
  if constexpr (requires { typename P::desc; }) {
    return {typename P::desc(problem...), engine(), forward};
  } else {
    return {engine(), problem..., forward};
  }
}

// Restricts oneDNN to the calling thread while the object exists. The kernels themselves divide the
// work by its shape (thread_pool.h), and bits must not depend on OMP_NUM_THREADS.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// A primitive with its arguments (DNNL_ARG_...), whose addresses may change between calls.
class Primitive {
 public:
  using Descriptors = std::initializer_list<std::pair<int, dnnl::memory::desc>>;
  using Addresses = std::initializer_list<std::pair<int, const void*>>;

  // Creates a primitive with these arguments. An argument whose descriptor is empty is skipped.
  Primitive(dnnl::primitive primitive, Descriptors arguments);
  // Runs the primitive on these addresses and blocks until it is done. Ignores addresses of
  // arguments that were skipped.
  void run(Addresses addresses);

 private:
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

// LRU cache of at most `most` objects.
template <typename Key, typename Made>
class Cache {
 public:
  explicit Cache(size_t most) : most_(most) {}

  // Returns the cached object for `key`, or creates it by make(key). The reference is valid until
  // the next call.
  template <typename Make>
  Made& get(const Key& key, Make&& make) {
    auto found = all_.find(key);
    if (found == all_.end()) {
      Made made = make(key);
      if (all_.size() >= most_) all_.erase(least_recently_used());
      found = all_.emplace(key, Entry{std::move(made)}).first;
    }
    found->second.used = ++uses_;
    return found->second.made;
  }
  size_t size() const { return all_.size(); }

 private:
  struct Entry {
    Made made;
    uint64_t used = 0;  // sequence number of the object's last use
  };
  auto least_recently_used() {
    return std::ranges::min_element(all_, {}, [](const auto& at) { return at.second.used; });
  }

  size_t most_;
  std::map<Key, Entry> all_;
  uint64_t uses_ = 0;
};

// Maximum number of cached primitives of each kind. A model has at most a few hundred shapes of
// each kind.
inline constexpr size_t kMostPrimitives = 512;

[[noreturn]] void throw_failure(const std::string& what, const dnnl::error& error);

// Calls use(made) with the calling thread's cached primitive (or struct of several) for `key`.
// make(key) creates it at the first use and after eviction. describe(key) names the failed
// operation in an Error ("a product of ...").
template <typename Key, typename Make, typename Describe, typename Use>
void run(const Key& key, Make&& make, Describe&& describe, Use&& use) {
  thread_local Cache<Key, std::invoke_result_t<Make, const Key&>> all_made(kMostPrimitives);
  const OneThread one_thread;
  try {
    use(all_made.get(key, make));
  } catch (const dnnl::error& error) {
    throw_failure(describe(key), error);
  }
}

}  // namespace tutti::training::onednn
