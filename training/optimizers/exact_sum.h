// Sums that do not depend on the order or grouping of their terms. Norms use them, so that their
// bits do not depend on how parameters are sharded.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "training/core/tensor.h"

namespace tutti::training {

// A sum as one long fixed-point number (Kulisch: Computer arithmetic and validity, 2008): digits of
// 32 bits in 64-bit limbs, so that carries are deferred until a limb might overflow. Integer
// addition is associative, which makes sums reproducible (Demmel, Nguyen: Parallel reproducible
// summation, 2015), here exactly.
//
// Terms with a magnitude in [2^-300, 2^319] are added without any error; of each smaller term, bits
// below 2^-352 are cut off. Infinity, NaN and terms of 2^320 or more make the sum NaN permanently.
// Not thread-safe.
class ExactSum {
 public:
  static constexpr int kLimbs = 23;

  void add(double term);
  void add(const ExactSum& other);
  // Returns the sum, rounded once to nearest even.
  double value() const;
  // To sum over ranks (at most 2^20), all-reduce the limbs with sum.
  std::span<int64_t, kLimbs> limbs();

 private:
  static constexpr int kDigits = kLimbs - 1;
  static constexpr int kNotFinite = kDigits;  // the limb that counts such terms

  void carry();

  std::array<int64_t, kLimbs> limbs_{};
  int64_t pending_ = 0;  // terms since the last carry; each adds less than 2^32 to a limb
};

// Adds the squares of a parameter's elements. Squares are summed in double within aligned blocks of
// kAlignment elements, in a fixed order, and the blocks' sums are added exactly. So the first
// element must be at the start of a block, as in every piece of a layout; the last one may be
// anywhere.
void add_squares(std::span<const float> elements, ExactSum& sum);
// 1 x n of f16, bf16 or f32. Throws Error(unsupported) for another type.
void add_squares(ConstTensor elements, ExactSum& sum);

}  // namespace tutti::training
