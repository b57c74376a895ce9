// Inspects a rank's own gradients before they are summed over ranks. Checks that they are finite,
// and measures the norm of one micro-batch's gradient. This norm and the norm of the whole step's
// gradient yield the gradient noise scale (optimizers/noise_scale.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "training/core/model.h"
#include "training/core/unit_hooks.h"

namespace tutti::training {

// Forwards all calls to `inner`. Measures each parameter's gradient when all units of this rank
// that use the parameter have processed the first micro-batch. Checks the gradient when these units
// have processed all micro-batches of the step, just before ranks may sum the gradient. In a step
// of one micro-batch, a single read does both.
class GradientProbe : public UnitHooks {
 public:
  struct Options {
    // True if gradients are summed over ranks after every micro-batch, so that each micro-batch's
    // gradient must be checked.
    bool each_micro_batch = false;
    // True to measure the norm. Must be false if the model is sharded over ranks, each of which
    // then has only a part of a micro-batch's gradient.
    bool measures = false;
  };
  // Creates the probe; `inner` and `model` must outlive it.
  GradientProbe(UnitHooks& inner, Model& model, const Options& options);

  // Starts a step; `passes` has, for each unit, the number of times that its backward runs in the
  // step.
  void begin_step(std::span<const int64_t> passes);
  // Returns the index of the first parameter, in backward's order, whose gradient has a NaN or an
  // infinity.
  const std::optional<int>& broken() const { return broken_; }
  bool measures() const { return options_.measures; }
  // Returns the squared norm of the first micro-batch's gradient, including the loss scale. Returns
  // 0 on a rank without a micro-batch, and if norms are not measured.
  double square() const { return square_; }

  void before_forward(int unit) override { inner_.before_forward(unit); }
  void after_forward(int unit) override { inner_.after_forward(unit); }
  void before_backward(int unit) override { inner_.before_backward(unit); }
  void after_backward(int unit) override { inner_.after_backward(unit); }
  void before_weights(int unit) override { inner_.before_weights(unit); }
  void after_weights(int unit) override;

 private:
  struct Use {
    int64_t units = 0;    // number of units on this rank that use the parameter
    int64_t all = 0;      // number of backward calls of these units in this step
    int64_t reached = 0;  // number of these calls that have completed
  };
  void measure(int parameter, const Use& use);

  UnitHooks& inner_;
  Model& model_;
  const Options options_;
  std::vector<Use> uses_;  // by parameter
  std::optional<int> broken_;
  double square_ = 0;
};

}  // namespace tutti::training
