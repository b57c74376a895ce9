// One part of a step, by all threads of a block: dst = a, or a op b, for a run of elements; the
// result also goes into a message where the step sends one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/gpu/access.h"
#include "collectives/gpu/element.h"

namespace tutti::gpu {

struct Run {
  Access a;
  Access b;        // none: what is written is a
  Access dst;      // may be none
  Access message;  // may be none
  uint64_t count = 0;
  bool divides = false;

  TUTTI_DEVICE bool is_copy() const {
    if (b.at != nullptr || a.scales || divides) return false;
    return (dst.at == nullptr || dst.widened == a.widened) &&
           (message.at == nullptr || message.widened == a.widened);
  }
};

// Bytes of `count` elements (or accumulators) that lie in the vector at `offset` of their pack.
TUTTI_DEVICE uint32_t bytes_in_vector(uint32_t bytes, uint32_t offset) {
  if (bytes <= offset) return 0;
  const uint32_t rest = bytes - offset;
  return rest < sizeof(Vector) ? rest : static_cast<uint32_t>(sizeof(Vector));
}

template <typename E, typename Block>
TUTTI_DEVICE Pack<E> load(Block& block, const Access& from, uint64_t pack, uint32_t count,
                          double factor) {
  Pack<E> values;
  if (kHasAccumulator<E> && from.widened) {
    Array<Vector, kWide<E>> wide;
    TUTTI_UNROLL
    for (int i = 0; i < kWide<E>; ++i) {
      const auto offset = static_cast<uint32_t>(i * sizeof(Vector));
      const uint32_t bytes =
          bytes_in_vector(count * static_cast<uint32_t>(sizeof(typename E::Value)), offset);
      wide.at[i] = bytes == 0 ? Vector{}
                              : read(block, from, pack * kWide<E> * sizeof(Vector) + offset, bytes);
    }
    values = __builtin_bit_cast(Pack<E>, wide);
  } else {
    const uint32_t bytes = count * static_cast<uint32_t>(sizeof(typename E::Stored));
    values = widen<E>(read(block, from, pack * sizeof(Vector), bytes));
  }
  return from.scales ? scaled<E>(values, factor) : values;
}

template <typename E, typename Block>
TUTTI_DEVICE void store(Block& block, const Access& to, uint64_t pack, uint32_t count,
                        const Pack<E>& values) {
  if (to.at == nullptr) return;
  if (kHasAccumulator<E> && to.widened) {
    using Wide = Array<Vector, kWide<E>>;
    const auto wide = __builtin_bit_cast(Wide, values);
    TUTTI_UNROLL
    for (int i = 0; i < kWide<E>; ++i) {
      const auto offset = static_cast<uint32_t>(i * sizeof(Vector));
      const uint32_t bytes =
          bytes_in_vector(count * static_cast<uint32_t>(sizeof(typename E::Value)), offset);
      if (bytes == 0) continue;
      write(block, to, pack * kWide<E> * sizeof(Vector) + offset, wide.at[i], bytes);
    }
  } else {
    const uint32_t bytes = count * static_cast<uint32_t>(sizeof(typename E::Stored));
    write(block, to, pack * sizeof(Vector), narrow<E>(values), bytes);
  }
}

// Elements of the pack, which may be the last one.
template <typename E>
TUTTI_DEVICE uint32_t elements_in(uint64_t pack, uint64_t count) {
  const uint64_t rest = count - pack * kPack<E>;
  return rest < kPack<E> ? static_cast<uint32_t>(rest) : static_cast<uint32_t>(kPack<E>);
}

// How many packs a thread has under way at a time: enough to hide memory's latency, few enough for
// its registers.
template <typename E>
inline constexpr int kAtOnce = kPack<E> <= 4 ? 4 : 16 / kPack<E>;

template <typename E, typename Block>
TUTTI_DEVICE void compute_pack(Block& block, const Run& run, uint64_t pack, const Pack<E>& a,
                               const Pack<E>& b, uint32_t count) {
  const Launch& launch = block.launch;
  Pack<E> result = a;
  if (run.b.at != nullptr) result = combine<E>(static_cast<ReduceOp>(launch.op), a, b);
  if (run.divides) result = divided<E>(result, launch.combined);
  store<E>(block, run.dst, pack, count, result);
  store<E>(block, run.message, pack, count, result);
}

template <typename E, typename Block>
TUTTI_DEVICE void compute(Block& block, const Run& run) {
  const uint64_t packs = (run.count + kPack<E> - 1) / kPack<E>;
  const uint64_t stride = block.thread.threads();
  const double factor = block.launch.factor;
  for (uint64_t first = block.thread.index(); first < packs; first += stride * kAtOnce<E>) {
    Array<Pack<E>, kAtOnce<E>> a;
    Array<Pack<E>, kAtOnce<E>> b;
    TUTTI_UNROLL
    for (int i = 0; i < kAtOnce<E>; ++i) {
      const uint64_t pack = first + i * stride;
      if (pack >= packs) continue;
      const uint32_t count = elements_in<E>(pack, run.count);
      a.at[i] = load<E>(block, run.a, pack, count, factor);
      if (run.b.at != nullptr) b.at[i] = load<E>(block, run.b, pack, count, factor);
    }
    TUTTI_UNROLL
    for (int i = 0; i < kAtOnce<E>; ++i) {
      const uint64_t pack = first + i * stride;
      if (pack >= packs) continue;
      compute_pack<E>(block, run, pack, a.at[i], b.at[i], elements_in<E>(pack, run.count));
    }
  }
}

// Without a look at the elements.
template <typename Block>
TUTTI_DEVICE void copy(Block& block, const Run& run, uint64_t bytes) {
  constexpr int kAtATime = 4;
  const uint64_t vectors = (bytes + sizeof(Vector) - 1) / sizeof(Vector);
  const uint64_t stride = block.thread.threads();
  const auto bytes_at = [bytes](uint64_t i) {
    const uint64_t rest = bytes - i * sizeof(Vector);
    return rest < sizeof(Vector) ? static_cast<uint32_t>(rest)
                                 : static_cast<uint32_t>(sizeof(Vector));
  };
  for (uint64_t first = block.thread.index(); first < vectors; first += stride * kAtATime) {
    Array<Vector, kAtATime> held;
    TUTTI_UNROLL
    for (int i = 0; i < kAtATime; ++i) {
      const uint64_t at = first + i * stride;
      if (at < vectors) held.at[i] = read(block, run.a, at * sizeof(Vector), bytes_at(at));
    }
    TUTTI_UNROLL
    for (int i = 0; i < kAtATime; ++i) {
      const uint64_t at = first + i * stride;
      if (at >= vectors) continue;
      const uint32_t here = bytes_at(at);
      if (run.dst.at != nullptr) write(block, run.dst, at * sizeof(Vector), held.at[i], here);
      if (run.message.at != nullptr) {
        write(block, run.message, at * sizeof(Vector), held.at[i], here);
      }
    }
  }
}

// All of a run; also where there is nothing to do.
template <typename E, typename Block>
TUTTI_DEVICE void do_run(Block& block, const Run& run) {
  if (!run.is_copy()) return compute<E>(block, run);
  const bool in_its_place = run.dst.at == run.a.at && run.message.at == nullptr;
  if (in_its_place) return;
  const uint64_t width = run.a.widened ? sizeof(typename E::Value) : sizeof(typename E::Stored);
  copy(block, run, run.count * width);
}

}  // namespace tutti::gpu
