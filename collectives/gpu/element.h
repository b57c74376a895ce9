// Arithmetic of a kernel: packs of as many elements as a 16-byte vector holds, with the operators
// of the CPU kernels (base/kernels/operators.h), so that results equal those of the CPU bit by bit.
#pragma once

#include <cstdint>

#include "base/kernels/operators.h"
#include "base/reduce_op.h"
#include "collectives/gpu/device/annotate.h"
#include "collectives/gpu/device/words.h"

namespace tutti::gpu {

// Pairs of a value and an index.
template <typename V, typename I>
struct PairOf {
  struct Stored {
    V value;
    I index;
  };
  using Value = Stored;
};

template <typename E>
inline constexpr bool kIsPair = false;
template <typename V, typename I>
inline constexpr bool kIsPair<PairOf<V, I>> = true;

// Elements per vector.
template <typename E>
inline constexpr int kPack = static_cast<int>(sizeof(Vector) / sizeof(typename E::Stored));
// Number of vectors that a pack's accumulators occupy.
template <typename E>
inline constexpr int kWide = static_cast<int>(sizeof(typename E::Value) * kPack<E> /
                                              sizeof(Vector));

// True if a switch between GPUs can sum vectors of E (PTX ISA, multimem.ld_reduce); 16-bit floats
// are summed in float.
template <typename E>
inline constexpr bool kSwitchAdds = false;
template <>
inline constexpr bool kSwitchAdds<kernels::Float<float>> = true;
template <>
inline constexpr bool kSwitchAdds<kernels::Small<kernels::F16>> = true;
template <>
inline constexpr bool kSwitchAdds<kernels::Small<kernels::BF16>> = true;

template <typename E>
inline constexpr bool kIsF16 = false;
template <>
inline constexpr bool kIsF16<kernels::Small<kernels::F16>> = true;

template <typename T, int kCount>
struct Array {
  T at[kCount];
};

template <typename E>
using Pack = Array<typename E::Value, kPack<E>>;
template <typename E>
using StoredPack = Array<typename E::Stored, kPack<E>>;

template <typename E>
TUTTI_DEVICE Pack<E> widen(const Vector& vector) {
  if constexpr (kernels::kConverted<E>) {
    const auto stored = __builtin_bit_cast(StoredPack<E>, vector);
    Pack<E> pack;
    TUTTI_UNROLL
    for (int i = 0; i < kPack<E>; ++i) pack.at[i] = E::Conversion::widen(stored.at[i]);
    return pack;
  } else {
    return __builtin_bit_cast(Pack<E>, vector);
  }
}

template <typename E>
TUTTI_DEVICE Vector narrow(const Pack<E>& pack) {
  if constexpr (kernels::kConverted<E>) {
    StoredPack<E> stored;
    TUTTI_UNROLL
    for (int i = 0; i < kPack<E>; ++i) stored.at[i] = E::Conversion::narrow(pack.at[i]);
    return __builtin_bit_cast(Vector, stored);
  } else {
    return __builtin_bit_cast(Vector, pack);
  }
}

// Returns the values after rounding to elements.
template <typename E>
TUTTI_DEVICE Pack<E> rounded(const Pack<E>& pack) {
  return widen<E>(narrow<E>(pack));
}

template <typename E, typename Function>
TUTTI_DEVICE Pack<E> for_each(const Pack<E>& a, const Pack<E>& b, Function function) {
  Pack<E> result;
  TUTTI_UNROLL
  for (int i = 0; i < kPack<E>; ++i) result.at[i] = function(a.at[i], b.at[i]);
  return result;
}

template <typename E, typename Op>
TUTTI_DEVICE Pack<E> apply(const Pack<E>& a, const Pack<E>& b) {
  return for_each<E>(a, b, [](auto x, auto y) { return Op::template apply<E>(x, y); });
}

template <typename E, bool kMax>
TUTTI_DEVICE Pack<E> locate(const Pack<E>& a, const Pack<E>& b) {
  return for_each<E>(a, b, [](auto x, auto y) {
    return kernels::takes_left<kMax>(x.value, x.index, y.value, y.index) ? x : y;
  });
}

// Returns a op b, element by element. All threads of a launch use the same operator.
template <typename E>
TUTTI_DEVICE Pack<E> combine(ReduceOp op, const Pack<E>& a, const Pack<E>& b) {
  if constexpr (kIsPair<E>) {
    return op == ReduceOp::minloc ? locate<E, false>(a, b) : locate<E, true>(a, b);
  } else {
    switch (op) {
      case ReduceOp::prod:
        return apply<E, kernels::Prod>(a, b);
      case ReduceOp::min:
        return apply<E, kernels::Min>(a, b);
      case ReduceOp::max:
        return apply<E, kernels::Max>(a, b);
      default:
        break;
    }
    if constexpr (E::kBitwise) {
      switch (op) {
        case ReduceOp::band:
          return apply<E, kernels::And>(a, b);
        case ReduceOp::bor:
          return apply<E, kernels::Or>(a, b);
        case ReduceOp::bxor:
          return apply<E, kernels::Xor>(a, b);
        default:
          break;
      }
    }
    return apply<E, kernels::Sum>(a, b);  // sum, avg and premul_sum
  }
}

// Returns the pack multiplied by a factor, as scale() of base/reduce.h computes it.
template <typename E>
TUTTI_DEVICE Pack<E> scaled(const Pack<E>& pack, double factor) {
  if constexpr (kIsPair<E>) {
    return pack;
  } else {
    const auto by = static_cast<typename E::Value>(factor);
    return rounded<E>(for_each<E>(
        pack, pack, [by](auto x, auto) { return kernels::Prod::template apply<E>(x, by); }));
  }
}

// Return a sum divided by the number of ranks, as mean() of base/reduce.h computes it. The second
// function first adds the two partial sums `a` and `b`.
template <typename E>
TUTTI_DEVICE Pack<E> mean(const Pack<E>& sum, int ranks) {
  if constexpr (kIsPair<E>) {
    return sum;
  } else {
    return for_each<E>(
        sum, sum, [ranks](auto x, auto) { return kernels::Mean::template apply<E>(x, ranks); });
  }
}
template <typename E>
TUTTI_DEVICE Pack<E> mean(const Pack<E>& a, const Pack<E>& b, int ranks) {
  if constexpr (kIsPair<E>) {
    return a;
  } else {
    return for_each<E>(
        a, b, [ranks](auto x, auto y) { return kernels::Mean::template apply<E>(x, y, ranks); });
  }
}

}  // namespace tutti::gpu
