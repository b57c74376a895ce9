// Stochastic gradient descent with momentum.
#pragma once

#include <string>
#include <vector>

#include "training/optimizers/optimizer.h"
#include "training/optimizers/registry.h"

namespace tutti::training {

struct SgdOptions {
  double momentum = 0.9;      // in [0, 1); with 0 the optimizer has no state
  double weight_decay = 0.0;  // weight of an L2 penalty, whose gradient is added
  bool nesterov = false;
  DecayOn decay_on = DecayOn::as_specified;
};

// SGD with the arithmetic of torch.optim.SGD (Sutskever, Martens, Dahl, Hinton: On the importance
// of initialization and momentum in deep learning, ICML 2013): u = momentum u + g, w -= rate u;
// with Nesterov's momentum w -= rate (g + momentum u).
class Sgd : public Optimizer {
 public:
  // Creates the optimizer. Throws Error(invalid_argument) for options out of range.
  explicit Sgd(const SgdOptions& options = {});
  std::vector<std::string> state_names() const override;
  bool adds_gradients() const override { return true; }

 private:
  void update(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
              NormReducer& reducer) override;

  SgdOptions options_;
};

OptimizerKind sgd_kind();

}  // namespace tutti::training
