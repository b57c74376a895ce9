// What a layer's forward of a micro-batch takes on one rank: products of matrices and attention by
// a roofline with measured efficiencies, everything else by the bytes that it moves.
#pragma once

#include "training/planner/job.h"

namespace tutti::training::planner {

// Seconds.
struct LayerTime {
  double products = 0;  // but attention's
  double attention = 0;
  double bytes = 0;     // norms, activations, residual sums
  double launches = 0;  // that many kernels take at least so long to start
  double tensor = 0;    // sums over tensor ranks, as far as nothing hides them
  double context = 0;   // keys and values of other ranks, alike
  double dispatch = 0;  // tokens to experts and back
  double computing() const { return products + attention + bytes; }
};

LayerTime layer_time(const Job& job, const Layout& layout, const Efficiencies& efficiencies,
                     bool sparse);
// The output layer and its loss, forward and backward.
double output_time(const Job& job, const Layout& layout, const Efficiencies& efficiencies);
}  // namespace tutti::training::planner
