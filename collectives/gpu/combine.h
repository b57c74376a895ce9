// One part of a step, run by all threads of a block: dst = a, or dst = a op b, for a run of
// elements. If the step sends a message, the result also goes into it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/gpu/access.h"
#include "collectives/gpu/element.h"

namespace tutti::gpu {

struct Run {
  Access a;
  Access b;        // second operand; null: dst = a
  Access dst;      // destination; may be absent
  Access message;  // message; may be absent
  uint64_t count = 0;
  bool divides = false;

  // Returns true if the run only copies data, without arithmetic and without conversion.
  TUTTI_DEVICE bool is_copy() const {
    if (b.at != nullptr || a.scales || divides) return false;
    return (dst.at == nullptr || dst.widened == a.widened) &&
           (message.at == nullptr || message.widened == a.widened);
  }
  // Returns true if all operands have vector access.
  TUTTI_DEVICE bool is_aligned() const {
    const auto fits = [](const Access& x) { return x.at == nullptr || x.unit == Unit::vectors; };
    return fits(a) && fits(b) && fits(dst) && fits(message);
  }
};

// Returns how many bytes of the vector at `offset` are inside a range of `bytes` bytes.
TUTTI_DEVICE uint32_t vector_bytes(uint64_t offset, uint64_t bytes) {
  const uint64_t rest = bytes - offset;
  return rest < sizeof(Vector) ? static_cast<uint32_t>(rest)
                               : static_cast<uint32_t>(sizeof(Vector));
}

// Returns how many of the first `bytes` bytes of a pack are in the vector at `offset` in the pack.
TUTTI_DEVICE uint32_t bytes_in_vector(uint64_t bytes, uint64_t offset) {
  return bytes <= offset ? 0 : vector_bytes(offset, bytes);
}

// Returns the number of elements in pack `pack` of a run of `count` elements. The last pack may be
// short.
template <typename E>
TUTTI_DEVICE uint32_t elements_in(uint64_t pack, uint64_t count) {
  const uint64_t rest = count - pack * kPack<E>;
  return rest < kPack<E> ? static_cast<uint32_t>(rest) : static_cast<uint32_t>(kPack<E>);
}

// Loads a pack. `kFast`: whole packs with vector access; otherwise any unit, and the last pack may
// be short.
template <typename E, bool kFast, typename Block>
TUTTI_DEVICE Pack<E> load(Block& block, const Access& from, uint64_t pack, uint32_t count) {
  Pack<E> values;
  if (kernels::kConverted<E> && from.widened) {
    Array<Vector, kWide<E>> wide;
    TUTTI_UNROLL
    for (int i = 0; i < kWide<E>; ++i) {
      const uint32_t bytes = bytes_in_vector(count * sizeof(typename E::Value), i * sizeof(Vector));
      wide.at[i] = read<kFast>(block, from, (pack * kWide<E> + i) * sizeof(Vector), bytes);
    }
    values = __builtin_bit_cast(Pack<E>, wide);
  } else {
    const uint32_t bytes = count * sizeof(typename E::Stored);
    values = widen<E>(read<kFast>(block, from, pack * sizeof(Vector), bytes));
  }
  return from.scales ? scaled<E>(values, block.launch.factor) : values;
}

template <typename E, bool kFast, typename Block>
TUTTI_DEVICE void store(Block& block, const Access& to, uint64_t pack, uint32_t count,
                        const Pack<E>& values) {
  if (to.at == nullptr) return;
  if (kernels::kConverted<E> && to.widened) {
    using Wide = Array<Vector, kWide<E>>;
    const auto wide = __builtin_bit_cast(Wide, values);
    TUTTI_UNROLL
    for (int i = 0; i < kWide<E>; ++i) {
      const uint32_t bytes = bytes_in_vector(count * sizeof(typename E::Value), i * sizeof(Vector));
      write<kFast>(block, to, (pack * kWide<E> + i) * sizeof(Vector), wide.at[i], bytes);
    }
  } else {
    const uint32_t bytes = count * sizeof(typename E::Stored);
    write<kFast>(block, to, pack * sizeof(Vector), narrow<E>(values), bytes);
  }
}

template <typename E, bool kFast, typename Block>
TUTTI_DEVICE void finish_pack(Block& block, const Run& run, uint64_t pack, const Pack<E>& a,
                              const Pack<E>& b, uint32_t count) {
  const Launch& launch = block.launch;
  Pack<E> result = a;
  if (run.divides) {
    result = run.b.at != nullptr ? mean<E>(a, b, launch.combined) : mean<E>(a, launch.combined);
  } else if (run.b.at != nullptr) {
    result = combine<E>(static_cast<ReduceOp>(launch.op), a, b);
  }
  store<E, kFast>(block, run.dst, pack, count, result);
  store<E, kFast>(block, run.message, pack, count, result);
}

// Packs in flight per thread: enough to hide memory latency, and few enough for the thread's
// registers.
template <typename E, bool kFast>
inline constexpr int kAtOnce = !kFast          ? 1
                               : kPack<E> <= 4 ? 4
                                               : 16 / kPack<E>;

// Computes packs `begin` to `end`.
template <typename E, bool kFast, typename Block>
TUTTI_DEVICE void compute(Block& block, const Run& run, uint64_t begin, uint64_t end) {
  constexpr int kHeld = kAtOnce<E, kFast>;
  const uint64_t stride = block.thread.threads();
  for (uint64_t first = begin + block.thread.index(); first < end; first += stride * kHeld) {
    Array<Pack<E>, kHeld> a{};
    Array<Pack<E>, kHeld> b{};
    TUTTI_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      const uint64_t pack = first + i * stride;
      if (pack >= end) continue;
      const uint32_t count = kFast ? kPack<E> : elements_in<E>(pack, run.count);
      a.at[i] = load<E, kFast>(block, run.a, pack, count);
      if (run.b.at != nullptr) b.at[i] = load<E, kFast>(block, run.b, pack, count);
    }
    TUTTI_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      const uint64_t pack = first + i * stride;
      if (pack >= end) continue;
      const uint32_t count = kFast ? kPack<E> : elements_in<E>(pack, run.count);
      finish_pack<E, kFast>(block, run, pack, a.at[i], b.at[i], count);
    }
  }
}

// Copies vectors `begin` to `end` without regard to elements.
template <bool kFast, typename Block>
TUTTI_DEVICE void copy(Block& block, const Run& run, uint64_t bytes, uint64_t begin, uint64_t end) {
  constexpr int kHeld = kFast ? 4 : 1;
  const uint64_t stride = block.thread.threads();
  for (uint64_t first = begin + block.thread.index(); first < end; first += stride * kHeld) {
    Array<Vector, kHeld> held;
    TUTTI_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      const uint64_t offset = (first + i * stride) * sizeof(Vector);
      if (first + i * stride >= end) continue;
      held.at[i] = read<kFast>(block, run.a, offset, vector_bytes(offset, bytes));
    }
    TUTTI_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      const uint64_t offset = (first + i * stride) * sizeof(Vector);
      if (first + i * stride >= end) continue;
      const uint32_t here = vector_bytes(offset, bytes);
      if (run.dst.at != nullptr) write<kFast>(block, run.dst, offset, held.at[i], here);
      if (run.message.at != nullptr) write<kFast>(block, run.message, offset, held.at[i], here);
    }
  }
}

template <typename E, typename Block>
TUTTI_DEVICE void do_run(Block& block, const Run& run) {
  if (!run.is_copy()) {
    const uint64_t fast = run.is_aligned() ? run.count / kPack<E> : 0;
    compute<E, true>(block, run, 0, fast);
    return compute<E, false>(block, run, fast, (run.count + kPack<E> - 1) / kPack<E>);
  }
  const bool stays = run.dst.at == run.a.at || run.dst.at == nullptr;
  if (stays && run.message.at == nullptr) return;
  const uint64_t bytes =
      run.count * (run.a.widened ? sizeof(typename E::Value) : sizeof(typename E::Stored));
  const uint64_t fast = run.is_aligned() ? bytes / sizeof(Vector) : 0;
  copy<true>(block, run, bytes, 0, fast);
  copy<false>(block, run, bytes, fast, (bytes + sizeof(Vector) - 1) / sizeof(Vector));
}

}  // namespace tutti::gpu
