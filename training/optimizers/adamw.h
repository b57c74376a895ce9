// Adam with decoupled weight decay.
#pragma once

#include <string>
#include <vector>

#include "training/optimizers/adam_moments.h"
#include "training/optimizers/optimizer.h"
#include "training/optimizers/registry.h"

namespace tutti::training {

struct AdamWOptions {
  AdamMoments moments;
  double weight_decay = 0.01;  // values shrink by learning_rate * weight_decay
  DecayOn decay_on = DecayOn::as_specified;
};

// Step for step as torch.optim.AdamW does it (Kingma, Ba: Adam, ICLR 2015; Loshchilov, Hutter:
// Decoupled weight decay regularization, ICLR 2019).
class AdamW : public Optimizer {
 public:
  // Throws Error(invalid_argument) for options out of range.
  explicit AdamW(const AdamWOptions& options = {});
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }

 private:
  void update(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
              NormReducer& reducer) override;

  AdamWOptions options_;
};

OptimizerKind adamw_kind();

}  // namespace tutti::training
