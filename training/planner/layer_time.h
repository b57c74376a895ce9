// Predicts the time of a layer's forward pass of one micro-batch on one rank. It is a roofline
// model, which uses measured efficiencies for matrix products and attention, and memory traffic for
// all other operators.
#pragma once

#include "training/planner/job.h"

namespace tutti::training::planner {

// Parts of the time, in seconds.
struct LayerTime {
  double products = 0;  // matrix products outside attention
  double attention = 0;
  double bytes = 0;     // memory traffic of norms, activations, residual sums
  double launches = 0;  // kernel launches, a lower bound of computing()
  double tensor = 0;    // sums over tensor-parallel ranks that do not overlap with computation
  double context = 0;   // exchange of keys and values that does not overlap with computation
  double dispatch = 0;  // sending tokens to experts and back
  double computing() const { return products + attention + bytes; }
};

// Returns the parts of a layer's time. `sparse`: true for a layer with experts.
LayerTime layer_time(const Job& job, const Layout& layout, const Efficiencies& efficiencies,
                     bool sparse);
// Returns the seconds of the output layer and its loss, forward and backward.
double output_time(const Job& job, const Layout& layout, const Efficiencies& efficiencies);
}  // namespace tutti::training::planner
