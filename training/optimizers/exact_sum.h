// Sums that do not depend on the order or the grouping of their terms: what norms are made of, so
// that they have the same bits however parameters are cut among ranks.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "training/core/tensor.h"

namespace tutti::training {

// The sum as one long fixed-point number (Kulisch: Computer arithmetic and validity, 2008): digits
// of 32 bits in 64-bit limbs, so that carries wait until a limb might overflow. Integer addition is
// associative; that makes sums reproducible (Demmel, Nguyen: Parallel reproducible summation,
// 2015), here exactly.
//
// Terms with a magnitude in [2^-300, 2^319] are added without any error; of smaller ones the bits
// below 2^-352 are cut off, each term by itself. Infinity, NaN and terms of 2^320 or more make the
// sum NaN for good. Not thread-safe.
class ExactSum {
 public:
  static constexpr int kLimbs = 23;

  void add(double term);
  void add(const ExactSum& other);
  // Rounded once, to nearest even.
  double value() const;
  // Ranks add up their limbs (all-reduce with sum, of up to 2^20 ranks) to get the sum of all.
  std::span<int64_t, kLimbs> limbs();

 private:
  static constexpr int kDigits = kLimbs - 1;
  static constexpr int kNotFinite = kDigits;  // the limb that counts such terms

  void carry();

  std::array<int64_t, kLimbs> limbs_{};
  int64_t pending_ = 0;  // terms since the last carry: each adds less than 2^32 to a limb
};

// Adds the squares of a parameter's elements. They are summed in double within aligned blocks of
// kAlignment elements, in a fixed order, and the blocks' sums are added exactly. So the first
// element must be one that starts a block, as every piece of a layout does; the last one may be
// any.
void add_squares(std::span<const float> elements, ExactSum& sum);
// 1 x n of f16, bf16 or f32. Throws Error(unsupported) for another type.
void add_squares(ConstTensor elements, ExactSum& sum);

}  // namespace tutti::training
