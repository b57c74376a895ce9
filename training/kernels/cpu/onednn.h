// What the kernels that oneDNN computes have in common: one engine, one thread a call, primitives
// that each thread makes once for each shape, and the library's failures as Error(internal).
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

// bf16 as it is, everything else as f32.
dnnl::memory::data_type data_type(DType type);

// Whether oneDNN computes in this type here. f16, and bf16 on a processor without AVX-512, are
// to be converted to f32; f64 is not for oneDNN at all.
bool computes_in(DType type);

// What a primitive of the kind P does, by its `problem` (of a backward one: with the `forward` that
// it belongs to). oneDNN 2 wants an object of its own for the problem, P::desc, oneDNN 3 does not.
template <typename P, typename... Problem>
typename P::primitive_desc primitive_descriptor(const dnnl::primitive_attr& attributes,
                                                const Problem&... problem) {
  if constexpr (requires { typename P::desc; }) {
    return {typename P::desc(problem...), attributes, engine()};
  } else {
    return {engine(), problem..., attributes};
  }
}
// The same, by the implementation of that name; by oneDNN's first one where it is not there.
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
    const typename P::desc kept(problem...);  // next_impl() reads it
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

// While it lives, oneDNN computes on the calling thread alone: we cut the work ourselves, by its
// shape (thread_pool.h), and bits must not depend on OMP_NUM_THREADS.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// A primitive with its arguments (DNNL_ARG_...); only their addresses change from call to call.
class Primitive {
 public:
  using Descriptors = std::initializer_list<std::pair<int, dnnl::memory::desc>>;
  using Addresses = std::initializer_list<std::pair<int, const void*>>;

  // An argument whose descriptor is empty is left out.
  Primitive(dnnl::primitive primitive, Descriptors arguments);
  // Returns when it is done. Arguments that the primitive was made without are ignored.
  void run(Addresses addresses);

 private:
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

// What was made, by key: the `most` that were used last.
template <typename Key, typename Made>
class Cache {
 public:
  explicit Cache(size_t most) : most_(most) {}

  // What make(key) made, now or at an earlier call; valid until the next one.
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
    uint64_t used = 0;  // the number of the last call for it
  };
  auto least_recently_used() {
    return std::ranges::min_element(all_, {}, [](const auto& at) { return at.second.used; });
  }

  size_t most_;
  std::map<Key, Entry> all_;
  uint64_t uses_ = 0;
};

// A model has a few hundred shapes of each kind of primitive at most.
inline constexpr size_t kMostPrimitives = 512;

[[noreturn]] void throw_failure(const std::string& what, const dnnl::error& error);

// use(made), on the calling thread's primitive (or what holds several) for `key`, which make(key)
// made at the first call, or anew after many others. describe(key) says in an Error what failed ("a
// product of ...").
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
