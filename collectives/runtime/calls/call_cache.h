// Cache of a communicator's recently compiled calls. Keys contain no addresses of buffers, so a
// call is found again with other buffers.
//
// An entry is in one of kWays slots, starting at the slot that its key hashes to (set-associative).
// A new entry takes the first of these slots that is empty. If none is empty, it replaces one of
// the kWays entries in turn. Up to kWays kinds of calls therefore never evict each other, and a
// typical look-up compares one key.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "collectives/communicator.h"
#include "collectives/runtime/calls/compiled_call.h"

namespace tutti::internal {

struct CallKey {
  uint64_t input_count = 0;
  uint64_t output_count = 0;
  uint64_t rest = 0;
  uint64_t whom = 0;  // encoded root and tag
  bool operator==(const CallKey&) const = default;

  static CallKey of(const Request& request, const CallOptions& options) {
    const ConstBuffer& in = request.input;
    const Buffer& out = request.output;
    uint64_t rest = 0;
    const auto add = [&](auto value, int bits) {
      rest = rest << bits | static_cast<uint64_t>(value);
    };
    add(request.collective, 8);
    add(request.op.op, 8);
    add(in.dtype, 8);
    add(out.dtype, 8);
    add(in.space, 2);
    add(out.space, 2);
    add(request.tail, 9);
    add(in.data != nullptr, 1);
    add(out.data != nullptr, 1);
    add(request.sends, 1);
    add(options.deterministic, 1);
    add(aliasing_of(request), 2);
    auto whom = static_cast<uint64_t>(request.root);
    if (request.collective == Collective::send_recv) {
      add(request.own, 1);
      add(options.may_be_shorter, 1);
      whom = whom << 32 | static_cast<uint32_t>(options.tag);
    }
    return {in.count, out.count, rest, whom};
  }
};

// Returns true if two calls use the same operator. A key contains only the kind of the operator.
inline bool same_operator(const Reduction& a, const Reduction& b) {
  if (a.op == ReduceOp::premul_sum) return a.factor == b.factor;
  return a.op != ReduceOp::user || a.function == b.function || a.function->same_as(*b.function);
}

class CallCache {
 public:
  using Compiled = std::shared_ptr<const CompiledCall>;

  // Returns the entry of the call; null if there is none. The pointer is valid until the next
  // put(). Inlined, because it is on every call's path.
  [[gnu::always_inline]] const Compiled* find(const CallKey& key, std::string_view algorithm,
                                              const Reduction& op) const {
    const size_t home = home_of(key);
    for (size_t way = 0; way < kWays; ++way) {
      const Entry& entry = entries_[(home + way) % kEntries];
      if (entry.compiled == nullptr) return nullptr;
      if (entry.key == key && entry.algorithm == algorithm &&
          same_operator(entry.compiled->reduction, op)) {
        return &entry.compiled;
      }
    }
    return nullptr;
  }

  // Adds an entry; the key must not be in the cache. The reference is valid until the next put().
  const Compiled& put(const CallKey& key, std::string_view algorithm, Compiled compiled) {
    const size_t home = home_of(key);
    size_t way = 0;
    while (way < kWays && entries_[(home + way) % kEntries].compiled != nullptr) ++way;
    if (way == kWays) way = next_to_go_++ % kWays;
    Entry& entry = entries_[(home + way) % kEntries];
    entry = {key, std::string(algorithm), std::move(compiled)};
    return entry.compiled;
  }

 private:
  static constexpr int kBits = 7;
  static constexpr size_t kEntries = size_t{1} << kBits;
  static constexpr size_t kWays = 8;

  struct Entry {
    CallKey key;
    std::string algorithm;  // value of CallOptions::algorithm
    Compiled compiled;
  };

  static size_t home_of(const CallKey& key) {
    const uint64_t hash =
        (key.input_count * 0x9e3779b97f4a7c15 ^ key.output_count) * 0x94d049bb133111eb ^
        (key.rest ^ key.whom << 22 ^ key.whom) * 0xbf58476d1ce4e5b9;
    return hash >> (64 - kBits);
  }

  std::array<Entry, kEntries> entries_;
  size_t next_to_go_ = 0;
};

}  // namespace tutti::internal
