// The reduction operators, one value at a time. The CPU kernels (kernels.inc) and the GPU kernels
// (collectives/gpu) both use them, so that both give the same bits.
//
// As in convert.h, everything is in an anonymous namespace and calls nothing of the standard
// library. Everything is constexpr, which lets nvcc compile it for a device as well.
#pragma once

#include <cstdint>

#include "base/kernels/convert.h"

namespace tutti::kernels {
namespace {

// --- elements: the type in memory (Stored) and the type of arithmetic (Value) ---

// Integers wrap around: sums and products use the unsigned type.
template <typename T, typename Unsigned>
struct Integer {
  using Stored = T;
  using Value = T;
  using Wrapping = Unsigned;
  static constexpr bool kBitwise = true;
};

template <typename T>
struct Float {
  using Stored = T;
  using Value = T;
  using Wrapping = T;
  static constexpr bool kBitwise = false;
};

template <typename Format>
struct Small {
  using Stored = typename Format::Bits;
  using Value = float;
  using Wrapping = float;
  using Conversion = Format;
  static constexpr bool kBitwise = false;
};

template <typename Element>
constexpr bool kConverted = sizeof(typename Element::Stored) != sizeof(typename Element::Value);

// --- operators ---

struct Sum {
  template <typename E>
  static constexpr typename E::Value apply(typename E::Value a, typename E::Value b) {
    using W = typename E::Wrapping;
    return static_cast<typename E::Value>(static_cast<W>(a) + static_cast<W>(b));
  }
};

struct Prod {
  template <typename E>
  static constexpr typename E::Value apply(typename E::Value a, typename E::Value b) {
    using W = typename E::Wrapping;
    // 1u, because short types would be promoted to int, which may overflow
    if constexpr (E::kBitwise) {
      return static_cast<typename E::Value>(1u * static_cast<W>(a) * static_cast<W>(b));
    } else {
      return a * b;
    }
  }
};

// Returns NaN if either value is NaN. For equal values (-0 and 0) it returns b.
struct Min {
  template <typename E>
  static constexpr typename E::Value apply(typename E::Value a, typename E::Value b) {
    return ((a < b) | (a != a)) ? a : b;  // NOLINT: a != a is NaN
  }
};

struct Max {
  template <typename E>
  static constexpr typename E::Value apply(typename E::Value a, typename E::Value b) {
    return ((a > b) | (a != a)) ? a : b;  // NOLINT: a != a is NaN
  }
};

struct And {
  template <typename E>
  static constexpr typename E::Value apply(typename E::Value a, typename E::Value b) {
    return static_cast<typename E::Value>(a & b);
  }
};

struct Or {
  template <typename E>
  static constexpr typename E::Value apply(typename E::Value a, typename E::Value b) {
    return static_cast<typename E::Value>(a | b);
  }
};

struct Xor {
  template <typename E>
  static constexpr typename E::Value apply(typename E::Value a, typename E::Value b) {
    return static_cast<typename E::Value>(a ^ b);
  }
};

// Returns the mean of `ranks` >= 2 values, whose sum is a + b. If a + b overflows although neither
// a nor b does, half of the sum is divided, so that the mean is finite wherever a and b are.
struct Mean {
  template <typename E>
  static constexpr typename E::Value apply(typename E::Value a, typename E::Value b, int ranks) {
    const typename E::Value sum = Sum::apply<E>(a, b);
    if constexpr (E::kBitwise) {
      return apply<E>(sum, ranks);
    } else {
      const typename E::Value half = a / 2 + b / 2;
      const bool overflows = (sum - sum != 0) & (half - half == 0);  // x - x is 0 or NaN
      const typename E::Value mean = apply<E>(overflows ? half : sum, ranks);
      return overflows ? mean + mean : mean;
    }
  }
  // Returns the mean of values that add up to `sum`.
  template <typename E>
  static constexpr typename E::Value apply(typename E::Value sum, int ranks) {
    using Value = typename E::Value;
    // The type may be too small for `ranks`.
    if constexpr (E::kBitwise && sizeof(Value) < sizeof(int)) {
      return static_cast<Value>(sum / ranks);
    } else {
      return sum / static_cast<Value>(ranks);
    }
  }
};

// --- pairs of a value and an index ---

template <typename V, typename I>
struct Pair {
  using Value = V;
  using Index = I;
};

// Returns true if the pair of `a` is the result. Between two NaNs or two equal values, the lower
// index decides.
template <bool kMax, typename V, typename I>
constexpr bool takes_left(V a, I a_index, V b, I b_index) {
  const bool a_is_nan = a != a;  // NOLINT
  const bool b_is_nan = b != b;  // NOLINT
  const bool better = (kMax ? a > b : a < b) | (a_is_nan & !b_is_nan);
  const bool tie = (a == b) | (a_is_nan & b_is_nan);
  return better | (tie & (a_index <= b_index));
}

}  // namespace
}  // namespace tutti::kernels
