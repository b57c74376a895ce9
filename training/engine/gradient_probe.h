// What a step must know of a rank's own gradients before they are summed over ranks: whether they
// are finite, and the norm of one micro-batch's, which with the norm of the whole step's gradient
// tells the gradient noise scale (optimizers/noise_scale.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "training/core/model.h"
#include "training/core/unit_hooks.h"

namespace tutti::training {

// Passes everything on to `inner`, and reads each parameter's gradient when the step's
// micro-batches have been through all units here that use it, just before ranks may sum it. Where
// that is one micro-batch, it is read once for both.
class GradientProbe : public UnitHooks {
 public:
  struct Options {
    // Gradients are summed over ranks micro-batch by micro-batch: each is looked at.
    bool each_micro_batch = false;
    // Not where a model is cut over ranks, which each have a part of a micro-batch's gradient.
    bool measures = false;
  };
  // `inner` and the model outlive it.
  GradientProbe(UnitHooks& inner, Model& model, const Options& options);

  // `passes`: by unit, how often its backward runs.
  void begin_step(std::span<const int64_t> passes);
  // The parameter whose gradient was the first with a NaN or an infinity, in backward's order.
  const std::optional<int>& broken() const { return broken_; }
  bool measures() const { return options_.measures; }
  // The squared norm of the first micro-batch's gradient, as it lies in memory. 0 of a rank without
  // one, or that does not measure.
  double square() const { return square_; }

  void before_forward(int unit) override { inner_.before_forward(unit); }
  void after_forward(int unit) override { inner_.after_forward(unit); }
  void before_backward(int unit) override { inner_.before_backward(unit); }
  void after_backward(int unit) override { inner_.after_backward(unit); }
  void before_weights(int unit) override { inner_.before_weights(unit); }
  void after_weights(int unit) override;

 private:
  struct Use {
    int64_t units = 0;    // here, that use the parameter
    int64_t all = 0;      // their backwards in this step
    int64_t reached = 0;  // of these
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
