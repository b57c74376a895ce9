// Predicts the memory of training without a layout: the bytes of the parameters in each type, and
// the bytes that training takes on one processor, by kind.
#pragma once

#include <array>
#include <cstdint>

#include "training/planner/model_shape.h"

namespace tutti::training::planner {

struct ParameterType {
  const char* name;
  double bytes;  // bytes per parameter
};
inline constexpr std::array<ParameterType, 3> kParameterTypes = {
    ParameterType{"fp32", 4}, ParameterType{"fp16", 2}, ParameterType{"uint8", 1}};

// Residual states: all memory but parameters, gradients and optimizer states (Rajbhandari et al.,
// 2020, section 3.2). In bytes.
struct ResidualStates {
  double activations = 0;  // activations: 12 values of 16 bits per token, hidden value and layer
  // activations with full recomputation: the layers' inputs, and one layer's activations
  double recomputed = 0;
  double flat_buffer = 0;   // all gradients in one buffer of 32 bits, which grows with the model
  double fixed_buffer = 0;  // a buffer of constant size, which holds one bucket of gradients
};

// Computes the residual states; `bucket` is the size of a bucket of gradients in bytes.
ResidualStates residual_states(const ModelShape& model, int64_t batch, int64_t sequence,
                               double bucket);

}  // namespace tutti::training::planner
