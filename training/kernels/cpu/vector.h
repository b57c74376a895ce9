// Helpers of the loops: element types, exp, and sums by lanes. They are compiled once per
// instruction set, in an anonymous namespace: otherwise the linker could replace a baseline version
// of a function by one with wide instructions.
//
// The loops are plain C++ that the compiler vectorizes. Sums have a fixed number of lanes, so their
// order and their bits depend at most on the instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/kernels/convert.h"

namespace tutti::training::kernels {
namespace {

// An element type: the type in memory (Stored) and the type for computation (Value).
template <typename Format>
struct Small {
  using Stored = typename Format::Bits;
  using Value = float;
  static inline float load(Stored bits) { return Format::widen(bits); }
  static inline Stored store(float value) { return Format::narrow(value); }
};

template <typename T>
struct Plain {
  using Stored = T;
  using Value = T;
  static inline T load(T value) { return value; }
  static inline T store(T value) { return value; }
};

using F16 = Small<tutti::kernels::F16>;
using BF16 = Small<tutti::kernels::BF16>;
using F32 = Plain<float>;
using F64 = Plain<double>;

// Returns exp(x), by argument reduction to [-ln2/2, ln2/2] and a polynomial (Cephes, expf).
// Accurate to 2 ulp; 0 below -104, infinity above 88.8, NaN for NaN. The argument is clamped
// instead of selecting a result for extreme arguments: compilers turn such selects into jumps,
// which prevents vectorization.
inline float exp_of(float x) {
  constexpr float kLog2E = 1.44269504088896341f;
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  float bounded = x < -104.0f ? -104.0f : x;
  bounded = bounded > 89.5f ? 89.5f : bounded;
  const float scaled = bounded * kLog2E;
  const int32_t whole = static_cast<int32_t>(scaled + (scaled < 0 ? -0.5f : 0.5f));
  const float n = static_cast<float>(whole);
  const float r = (bounded - n * kLn2High) - n * kLn2Low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = (p * r) * r + r + 1.0f;
  // Multiplies by 2^n in two factors, because n is between -150 and 129.
  const int32_t half = whole >> 1;
  const float first = __builtin_bit_cast(float, (half + 127) << 23);
  const float second = __builtin_bit_cast(float, (whole - half + 127) << 23);
  return p * first * second;
}

inline double exp_of(double x) { return __builtin_exp(x); }

template <typename Value>
inline Value tanh_of(Value x) {
  return Value{1} - Value{2} / (exp_of(Value{2} * x) + Value{1});
}

template <typename Value>
inline Value sigmoid_of(Value x) {
  return Value{1} / (Value{1} + exp_of(-x));
}

// Returns the sum of term(i) for i in [0, count), in 16 lanes.
template <typename Value, typename Term>
inline Value sum_of(int64_t count, Term&& term) {
  constexpr int64_t kLanes = 16;
  Value lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma GCC unroll 1
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  Value rest{};
  for (; i < count; ++i) rest += term(i);
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0] + rest;
}

template <typename Value, typename Term>
inline Value max_of(int64_t count, Value least, Term&& term) {
  constexpr int64_t kLanes = 16;
  Value lanes[kLanes];
  for (Value& lane : lanes) lane = least;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma GCC unroll 1
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const Value value = term(i + lane);
      lanes[lane] = value > lanes[lane] ? value : lanes[lane];
    }
  }
  for (; i < count; ++i) {
    const Value value = term(i);
    lanes[0] = value > lanes[0] ? value : lanes[0];
  }
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t lane = 0; lane < width; ++lane) {
      const Value other = lanes[lane + width];
      lanes[lane] = other > lanes[lane] ? other : lanes[lane];
    }
  }
  return lanes[0];
}

}  // namespace
}  // namespace tutti::training::kernels
