// Sums that do not depend on the order or grouping of their terms. The bits of norms computed with
// them do not depend on how parameters are sharded (across tensor-parallel ranks, only with
// TUTTI_DETERMINISTIC=1).
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
// Terms with a magnitude in [2^-300, 2^320) are added without any error. Smaller terms lose their
// bits below 2^-352. Infinity, NaN and terms of 2^320 or more make the sum NaN permanently. Not
// thread-safe.
class ExactSum {
 public:
  static constexpr int kLimbs = 23;

  void add(double term);
  void add(const ExactSum& other);
  // Returns the sum, rounded once to nearest even.
  double value() const;
  // Returns the limbs. To sum over ranks (at most 2^20), all-reduce them with ReduceOp::sum.
  std::span<int64_t, kLimbs> limbs();

 private:
  static constexpr int kDigits = kLimbs - 1;
  // index of the limb that counts terms that are not finite
  static constexpr int kNotFinite = kDigits;

  void carry();

  std::array<int64_t, kLimbs> limbs_{};
  int64_t pending_ = 0;  // number of terms since the last carry; each adds less than 2^32 to a limb
};

// Adds the squares of a parameter's elements to `sum`. With TUTTI_DETERMINISTIC=1 all squares are
// added exactly, so that the sum does not depend on how a parameter is divided. Otherwise squares
// are summed in double within aligned blocks of kAlignment elements, in a fixed order, and the
// blocks' sums are added exactly. The first element must therefore be at the start of a block, as
// in every piece of a layout; the last one may be anywhere.
void add_squares(std::span<const float> elements, ExactSum& sum);
// Adds the squares of 1 x n elements of f16, bf16 or f32 in the same way. Throws Error(unsupported)
// for another type.
void add_squares(ConstTensor elements, ExactSum& sum);

}  // namespace tutti::training
