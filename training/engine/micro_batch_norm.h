// The norm of one micro-batch's gradient, on its way to the sum: with the norm of the whole step's
// gradient it tells the gradient noise scale (optimizers/noise_scale.h).
#pragma once

#include <vector>

#include "training/core/model.h"
#include "training/pipeline/runner.h"

namespace tutti::training {

// Passes everything on to `inner`, and reads each parameter's gradient when the step's first
// micro-batch has been through all units that use it: before the next one is added, and before
// ranks are summed. Not where a model is cut over ranks, which each have a part of it.
class MicroBatchNorm : public UnitHooks {
 public:
  // Both outlive it.
  MicroBatchNorm(UnitHooks& inner, Model& model);

  void begin_step();
  // The squared norm, of gradients as they lie in memory. 0 of a rank without a micro-batch.
  double square() const { return square_; }

  void before_forward(int unit) override { inner_.before_forward(unit); }
  void after_forward(int unit) override { inner_.after_forward(unit); }
  void before_backward(int unit) override { inner_.before_backward(unit); }
  void after_backward(int unit) override { inner_.after_backward(unit); }
  void before_weights(int unit) override { inner_.before_weights(unit); }
  void after_weights(int unit) override;

 private:
  double square_of(int parameter) const;

  UnitHooks& inner_;
  Model& model_;
  std::vector<int> uses_;     // by parameter: the units that use it
  std::vector<int> reached_;  // of these, in this step, once for each micro-batch
  double square_ = 0;
};

}  // namespace tutti::training
