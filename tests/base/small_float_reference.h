// Slow reference implementation of the 16- and 8-bit floating-point types, written after their
// definitions, for tests of conversions and kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/dtype.h"

namespace tutti::testing {

class SmallFloatReference {
 public:
  explicit SmallFloatReference(DType type) : type_(type) {
    switch (type) {
      case DType::f16:
        set(16, 10, 15, 0x7c00, 0x7e00);
        break;
      case DType::bf16:
        set(16, 7, 127, 0x7f80, 0x7fc0);
        break;
      case DType::f8e4m3:
        set(8, 3, 7, 0x7f, 0x7f);
        break;
      default:
        set(8, 2, 15, 0x7c, 0x7e);
        break;
    }
    for (int code = 0; code <= overflow_; ++code) steps_.push_back(magnitude(code));
  }

  DType type() const { return type_; }
  int codes() const { return 1 << width_; }

  double decode(int code) const {
    const int sign_bit = 1 << (width_ - 1);
    const int rest = code & (sign_bit - 1);
    double value = magnitude(rest);
    if (rest == overflow_) value = std::numeric_limits<double>::infinity();
    if (rest > overflow_ || (rest == overflow_ && overflow_ == nan_)) value = std::nan("");
    return (code & sign_bit) != 0 ? -value : value;
  }

  // Returns the code of the nearest value, ties to the even code. For this purpose, the first step
  // beyond the largest value is a value too, whose code is infinity or NaN.
  int encode(double value) const {
    if (std::isnan(value)) return nan_;
    const double wanted = std::abs(value);
    const auto above = std::lower_bound(steps_.begin(), steps_.end(), wanted);
    int code = overflow_;
    if (above != steps_.end()) {
      code = static_cast<int>(above - steps_.begin());
      if (*above != wanted) {
        const double up = *above - wanted;
        const double down = wanted - *(above - 1);
        if (down < up || (down == up && code % 2 == 1)) --code;
      }
    }
    if (code == nan_) return nan_;
    return code | (std::signbit(value) ? 1 << (width_ - 1) : 0);
  }

  // Returns all midpoints between neighbouring values, and the floats next to them.
  std::vector<float> hard_cases() const {
    std::vector<float> cases;
    for (size_t i = 0; i + 1 < steps_.size(); ++i) {
      const auto middle = static_cast<float>((steps_[i] + steps_[i + 1]) / 2);
      for (float value : {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, INFINITY)}) {
        cases.push_back(value);
        cases.push_back(-value);
      }
    }
    return cases;
  }

 private:
  void set(int width, int mantissa, int bias, int overflow, int nan) {
    width_ = width;
    mantissa_ = mantissa;
    bias_ = bias;
    overflow_ = overflow;
    nan_ = nan;
  }

  double magnitude(int code) const {
    const int exponent = code >> mantissa_;
    const int fraction = code & ((1 << mantissa_) - 1);
    if (exponent == 0) return std::ldexp(fraction, 1 - bias_ - mantissa_);
    return std::ldexp(fraction + (1 << mantissa_), exponent - bias_ - mantissa_);
  }

  DType type_;
  int width_ = 0;
  int mantissa_ = 0;
  int bias_ = 0;
  int overflow_ = 0;  // code of infinity, or of NaN in types without infinity
  int nan_ = 0;
  // Values of the codes 0 to overflow_; the last value is the next step beyond the largest one.
  std::vector<double> steps_;
};

}  // namespace tutti::testing
