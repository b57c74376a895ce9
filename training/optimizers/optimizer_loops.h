// The loops of the optimizers, as each instruction set offers them; every set gives the same bits.
// Element i of an output depends on element i of the inputs alone, so arrays may be cut anywhere.
// Arrays must not overlap. Safe from any thread.
#pragma once

#include <cstdint>

#include "base/reduce.h"

namespace tutti::training::optimizer_loops {

inline constexpr int64_t kSquaresBlock = 32;

// Tables of codes (dynamic_map.h). Floats from 2^-23 to 1 are cut into kCells cells, in which
// 2^kCellBits floats lie that differ in their last bits only; smaller ones count as the first. The
// entry of a cell is the code of its first float, and in its last kCellBits bits those of the last
// float that has this code: the others have the next code, of negative floats the one before. The
// cells of positive floats come first.
inline constexpr uint32_t kCellBits = 16;
inline constexpr uint32_t kCellMask = (1U << kCellBits) - 1;
inline constexpr uint32_t kLeastCell = 0x34000000;  // the bits of 2^-23
inline constexpr uint32_t kLastCell = 0x3f800000;   // of 1
inline constexpr uint32_t kCells = ((kLastCell - kLeastCell) >> kCellBits) + 1;

// u is what the values w move by. g is the gradient times `gradient`, plus decay * w.
struct SgdFactors {
  float gradient = 1;
  float decay = 0;
  float momentum = 0;
  float rate = 0;
  bool nesterov = false;
};

// m += (g - m) * (1 - beta1), v = beta2 * v + (1 - beta2) * g^2, and Adam's direction,
// (m / correction1) / (sqrt(v) / root_correction2 + epsilon).
struct MomentFactors {
  float gradient = 1;
  float one_minus_beta1 = 0;
  float beta2 = 0;
  float one_minus_beta2 = 0;
  float correction1 = 1;
  float root_correction2 = 1;
  float epsilon = 0;
};

struct Loops {
  // sums[b] = the sum of squares of the block of kSquaresBlock values, in double and a fixed order.
  void (*squares)(const float* values, double* sums, int64_t blocks);

  // Without momentum: w -= rate * g. momentum may be null only for sgd_plain.
  void (*sgd_plain)(float* w, const float* gradients, int64_t n, SgdFactors factors);
  // momentum = factors.momentum * momentum + g; w -= rate * momentum.
  void (*sgd)(float* w, const float* gradients, float* momentum, int64_t n, SgdFactors factors);
  // momentum = factors.momentum * momentum + rate * g; w -= momentum.
  void (*lars)(float* w, const float* gradients, float* momentum, int64_t n, SgdFactors factors);

  // w = keep * w - rate * direction, after updating m and v.
  void (*adamw)(float* w, const float* gradients, float* m, float* v, int64_t n,
                MomentFactors factors, float keep, float rate);
  // Updates m and v.
  void (*moments)(const float* gradients, float* m, float* v, int64_t n, MomentFactors factors);
  // u = direction + decay * w
  void (*lamb_direction)(const float* w, const float* m, const float* v, float* u, int64_t n,
                         MomentFactors factors, float decay);
  // w -= rate * u
  void (*descend)(float* w, const float* u, int64_t n, float rate);

  // values[i] = map[codes[i]] * scale; `map` has 256 values.
  void (*dequantize)(const uint8_t* codes, const float* map, float scale, float* values, int64_t n);
  // codes[i] = the code of values[i] / scale by `cells`, with the largest absolute value as scale,
  // which is returned. Where that is 0 all codes are that of 0.
  float (*quantize)(const float* values, const uint32_t* cells, uint8_t* codes, int64_t n);

  // bf16s from values: element i by random_bits(seed, stream, first + i).
  void (*round_stochastically)(const float* values, uint16_t* bf16s, int64_t n, uint64_t seed,
                               uint64_t stream, uint64_t first);
};

// Those of the selected instruction set (TUTTI_CPU); of any that is available.
const Loops& loops();
const Loops& loops(InstructionSet set);

namespace baseline {
extern const Loops kLoops;
}
namespace avx2 {
extern const Loops kLoops;
}
namespace avx512 {
extern const Loops kLoops;
}

}  // namespace tutti::training::optimizer_loops
