// Adam with decoupled weight decay.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "training/optimizers/adam_moments.h"
#include "training/optimizers/optimizer.h"
#include "training/optimizers/optimizer_loops.h"
#include "training/optimizers/registry.h"

namespace tutti::training {

struct AdamWOptions {
  AdamMoments moments;
  double weight_decay = 0.01;  // each step multiplies values by 1 - learning_rate * weight_decay
  DecayOn decay_on = DecayOn::as_specified;
};

// Throws Error(invalid_argument) for options out of range.
void check(const AdamWOptions& options);
// Returns the defaults for a model, for OptimizerKind::suits.
Json suited_adamw(const ModelTraits& model);
void describe_adamw(Schema& schema, AdamWOptions& options);

// One AdamW step on elements, independent of where their moments are stored.
class AdamWStep {
 public:
  // Prepares a step; `options` must outlive the object.
  AdamWStep(const AdamWOptions& options, const StepOptions& step);
  // Updates the moments m and v by the gradients g, then the values w. The arrays have `count`
  // elements and must not overlap.
  void update(const ParameterSpec& spec, float* w, const float* g, float* m, float* v,
              int64_t count) const;

 private:
  const AdamWOptions& options_;
  optimizer_loops::MomentFactors factors_;
  float rate_;
  float keep_;
};

// AdamW with the arithmetic of torch.optim.AdamW (Kingma, Ba: Adam, ICLR 2015; Loshchilov, Hutter:
// Decoupled weight decay regularization, ICLR 2019).
class AdamW : public Optimizer {
 public:
  // Creates the optimizer. Throws Error(invalid_argument) for options out of range.
  explicit AdamW(const AdamWOptions& options = {});
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }

 private:
  void update(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
              NormReducer& reducer) override;

  AdamWOptions options_;
};

OptimizerKind adamw_kind();

}  // namespace tutti::training
