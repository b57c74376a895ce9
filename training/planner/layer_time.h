// Time of a layer's forward pass of one micro-batch on one rank: a roofline with measured
// efficiencies for matrix products and attention, bytes moved for all other operators.
#pragma once

#include "training/planner/job.h"

namespace tutti::training::planner {

// Seconds.
struct LayerTime {
  double products = 0;  // matrix products outside attention
  double attention = 0;
  double bytes = 0;     // norms, activations, residual sums
  double launches = 0;  // lower bound: kernel launches
  double tensor = 0;    // exposed sums over tensor ranks
  double context = 0;   // exposed exchange of keys and values
  double dispatch = 0;  // tokens to experts and back
  double computing() const { return products + attention + bytes; }
};

LayerTime layer_time(const Job& job, const Layout& layout, const Efficiencies& efficiencies,
                     bool sparse);
// The output layer and its loss, forward and backward.
double output_time(const Job& job, const Layout& layout, const Efficiencies& efficiencies);
}  // namespace tutti::training::planner
