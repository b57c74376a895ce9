// Inspection of a rank's own gradients before they are summed over ranks: whether they are finite,
// and the norm of one micro-batch's gradient, which together with the norm of the whole step's
// gradient yields the gradient noise scale (optimizers/noise_scale.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "training/core/model.h"
#include "training/core/unit_hooks.h"

namespace tutti::training {

// Forwards all calls to `inner`, and reads each parameter's gradient once the step's micro-batches
// have passed all units here that use it, just before ranks may sum it. For a step of one
// micro-batch, one read serves both purposes.
class GradientProbe : public UnitHooks {
 public:
  struct Options {
    // Gradients are summed over ranks micro-batch by micro-batch: check each.
    bool each_micro_batch = false;
    // Measure the norm. Must be false if the model is cut over ranks, each of which then has only a
    // part of a micro-batch's gradient.
    bool measures = false;
  };
  // `inner` and the model must outlive it.
  GradientProbe(UnitHooks& inner, Model& model, const Options& options);

  // `passes`: by unit, number of times that its backward runs.
  void begin_step(std::span<const int64_t> passes);
  // The first parameter, in backward's order, whose gradient has a NaN or an infinity.
  const std::optional<int>& broken() const { return broken_; }
  bool measures() const { return options_.measures; }
  // The squared norm of the first micro-batch's gradient, loss scale included. 0 on a rank without
  // a micro-batch, and if norms are not measured.
  double square() const { return square_; }

  void before_forward(int unit) override { inner_.before_forward(unit); }
  void after_forward(int unit) override { inner_.after_forward(unit); }
  void before_backward(int unit) override { inner_.before_backward(unit); }
  void after_backward(int unit) override { inner_.after_backward(unit); }
  void before_weights(int unit) override { inner_.before_weights(unit); }
  void after_weights(int unit) override;

 private:
  struct Use {
    int64_t units = 0;    // number of units here that use the parameter
    int64_t all = 0;      // number of their backward calls in this step
    int64_t reached = 0;  // number of these that have completed
  };
  void look_at(int parameter, const Use& use);

  UnitHooks& inner_;
  Model& model_;
  const Options options_;
  std::vector<Use> uses_;  // by parameter
  std::optional<int> broken_;
  double square_ = 0;
};

}  // namespace tutti::training
