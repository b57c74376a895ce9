// LAMB: Adam with layer-wise learning rates, for large batches.
#pragma once

#include <string>
#include <vector>

#include "training/optimizers/adam_moments.h"
#include "training/optimizers/optimizer.h"
#include "training/optimizers/registry.h"

namespace tutti::training {

struct LambOptions {
  AdamMoments moments = {.epsilon = 1e-6};
  double weight_decay = 0.01;
  DecayOn decay_on = DecayOn::as_specified;
};

// You et al.: Large batch optimization for deep learning: training BERT in 76 minutes, ICLR 2020,
// algorithm 2 with the identity as phi:
//
//   u = Adam's direction + weight_decay w
//   w -= rate (|w| / |u|) u
//
// The trust ratio |w| / |u| is 1 if either norm is 0, and for parameters without weight decay, as
// in the authors' program.
class Lamb : public Optimizer {
 public:
  // Creates the optimizer. Throws Error(invalid_argument) for options out of range.
  explicit Lamb(const LambOptions& options = {});
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  bool is_elementwise() const override { return false; }

 private:
  void update(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
              NormReducer& reducer) override;

  LambOptions options_;
};

OptimizerKind lamb_kind();

}  // namespace tutti::training
