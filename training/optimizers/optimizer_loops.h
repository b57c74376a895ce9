// The loops of the optimizers, as each instruction set offers them; every set gives the same bits.
// Element i of an output depends on element i of the inputs alone, so arrays may be cut anywhere.
// Arrays must not overlap. Safe from any thread.
#pragma once

#include <cstdint>

#include "base/reduce.h"

namespace tutti::training::optimizer_loops {

inline constexpr int64_t kSquaresBlock = 32;

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
