#include "training/planner/model_memory.h"

#include <algorithm>

#include "training/planner/job.h"

namespace tutti::training::planner {

ResidualStates residual_states(const ModelShape& model, int64_t batch, int64_t sequence,
                               double bucket) {
  constexpr double kValuesOfLayer = 12;
  const double values = count(batch) * count(sequence) * count(model.hidden);
  const double layer = kHalfBytes * kValuesOfLayer * values;
  ResidualStates states;
  states.activations = count(model.layers) * layer;
  states.recomputed = count(model.layers) * kHalfBytes * values + layer;
  states.flat_buffer = kParameterTypes[0].bytes * count(parameters(model));
  states.fixed_buffer = std::min(bucket, states.flat_buffer);
  return states;
}

}  // namespace tutti::training::planner
