// Memory of a training without a layout: what the parameters take in each type, and what training
// them takes on one processor, by kind.
#pragma once

#include <array>
#include <cstdint>

#include "training/planner/model_shape.h"

namespace tutti::training::planner {

struct ParameterType {
  const char* name;
  double bytes;  // of a parameter
};
inline constexpr std::array<ParameterType, 3> kParameterTypes = {
    ParameterType{"fp32", 4}, ParameterType{"fp16", 2}, ParameterType{"uint8", 1}};

// Residual states: all memory but parameters, gradients and optimizer states (Rajbhandari et al.,
// 2020, section 3.2). In bytes.
struct ResidualStates {
  double activations = 0;   // 12 values of 16 bits a token, hidden value and layer
  double recomputed = 0;    // the layers' inputs, and one layer's activations: full recomputation
  double flat_buffer = 0;   // all gradients in one buffer of 32 bits, which grows with the model
  double fixed_buffer = 0;  // a buffer of constant size, for one bucket of gradients
};

// `bucket` is the size of a bucket of gradients in bytes.
ResidualStates residual_states(const ModelShape& model, int64_t batch, int64_t sequence,
                               double bucket);

}  // namespace tutti::training::planner
