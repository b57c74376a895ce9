// The loops of the optimizers, per instruction set; all sets give the same bits. Element i of an
// output depends on element i of the inputs alone, so arrays may be split anywhere. Arrays must not
// overlap. Thread-safe.
#pragma once

#include <cstdint>

#include "base/reduce.h"

namespace tutti::training::optimizer_loops {

inline constexpr int64_t kSquaresBlock = 32;

// Layout of the tables of codes (dynamic_map.h). Floats from 2^-23 to 1 are divided into cells of
// 2^kCellBits floats that differ only in their last bits; smaller floats belong to the first cell.
// A cell's entry contains the code of its first float and, in its last kCellBits bits, the last
// bits of the last float with that code. Later floats of the cell have the next code (for negative
// floats: the code before). Cells of positive floats come first.
inline constexpr uint32_t kCellBits = 16;
inline constexpr uint32_t kCellMask = (1U << kCellBits) - 1;
inline constexpr uint32_t kLeastCell = 0x34000000;  // the float 2^-23 as bits
inline constexpr uint32_t kLastCell = 0x3f800000;   // the float 1 as bits
inline constexpr uint32_t kCells = ((kLastCell - kLeastCell) >> kCellBits) + 1;

// Factors of an SGD step. The gradient of an element is g = `gradient` * (the value in the array of
// gradients) + decay * w.
struct SgdFactors {
  float gradient = 1;
  float decay = 0;
  float momentum = 0;
  float rate = 0;
  bool nesterov = false;
};

// Factors of Adam's moments, m += (g - m) * (1 - beta1) and v = beta2 * v + (1 - beta2) * g^2, and
// of Adam's direction, (m / correction1) / (sqrt(v) / root_correction2 + epsilon).
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
  // sums[b] = sum of squares of block b of kSquaresBlock values, in double, in a fixed order.
  void (*squares)(const float* values, double* sums, int64_t blocks);

  // w -= rate * g, without momentum. Unlike sgd(), needs no momentum array.
  void (*sgd_plain)(float* w, const float* gradients, int64_t n, SgdFactors factors);
  // momentum = factors.momentum * momentum + g; w -= rate * momentum, or with Nesterov's momentum w
  // -= rate * (g + factors.momentum * momentum).
  void (*sgd)(float* w, const float* gradients, float* momentum, int64_t n, SgdFactors factors);
  // momentum = factors.momentum * momentum + rate * g; w -= momentum.
  void (*lars)(float* w, const float* gradients, float* momentum, int64_t n, SgdFactors factors);

  // Updates m and v, then w = keep * w - rate * m / (sqrt(v) / root_correction2 + epsilon). The
  // caller has divided `rate` by correction1.
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
  // Encodes values / scale by the table `cells` and returns the scale, which is the largest
  // absolute value. If the scale is 0, all codes are the code of 0.
  float (*quantize)(const float* values, const uint32_t* cells, uint8_t* codes, int64_t n);

  // Rounds values to bf16; element i uses random_bits(seed, stream, first + i).
  void (*round_stochastically)(const float* values, uint16_t* bf16s, int64_t n, uint64_t seed,
                               uint64_t stream, uint64_t first);
};

// Return the loops of the selected instruction set (TUTTI_CPU), or of a given available one.
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
