// LARS: momentum SGD with layer-wise learning rates, for large batches.
#pragma once

#include <string>
#include <vector>

#include "training/optimizers/optimizer.h"
#include "training/optimizers/registry.h"

namespace tutti::training {

struct LarsOptions {
  double momentum = 0.9;  // in [0, 1)
  double weight_decay = 1e-4;
  double trust_coefficient = 0.001;
  DecayOn decay_on = DecayOn::as_specified;
};

// You, Gitman, Ginsburg: Large batch training of convolutional networks, 2017, algorithm 1: local
// rate = trust_coefficient |w| / (|g| + weight_decay |w|), u = momentum u + rate local_rate (g +
// weight_decay w), w -= u. The local rate is 1 if either norm is 0, and for parameters without
// weight decay.
class Lars : public Optimizer {
 public:
  // Creates the optimizer. Throws Error(invalid_argument) for options out of range.
  explicit Lars(const LarsOptions& options = {});
  std::vector<std::string> state_names() const override { return {"momentum"}; }
  bool is_elementwise() const override { return false; }

 private:
  void update(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
              NormReducer& reducer) override;

  LarsOptions options_;
};

OptimizerKind lars_kind();

}  // namespace tutti::training
