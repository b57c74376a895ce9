// Dynamic loss scaling, which avoids underflow of fp16 gradients (Micikevicius et al.: Mixed
// precision training, ICLR 2018).
#pragma once

#include <cstdint>

namespace tutti::training {

struct LossScalerOptions {
  double initial_scale = 65536;
  double growth = 2;               // factor by which the scale is raised, above 1
  double backoff = 0.5;            // factor by which the scale is lowered, in (0, 1)
  int64_t growth_interval = 2000;  // steps without overflow before the scale is raised
  // Number of overflows until the scale is lowered, counted from the last raise; each later
  // overflow lowers it again (Megatron-LM). With 1, every overflow lowers the scale.
  int hysteresis = 1;
  double smallest_scale = 1;
};

// The loss is multiplied by scale() before backward, and the gradients by 1 / scale() afterwards. A
// step whose gradients overflowed is skipped. With a hysteresis of 1 the class behaves as
// torch.amp.GradScaler. All ranks must pass the same `overflow`, so that they have the same scale.
// Not thread-safe.
class LossScaler {
 public:
  // State for checkpoints.
  struct State {
    double scale = 0;
    int64_t good_steps = 0;  // steps since the last overflow or raise
    int overflows_left = 0;  // number of further overflows until the scale is lowered
    bool operator==(const State&) const = default;
  };

  // Creates a scaler. Throws Error(invalid_argument) for options out of range.
  explicit LossScaler(const LossScalerOptions& options = {});

  double scale() const { return state_.scale; }
  // Returns true if the scale cannot be lowered further, so that it is not the cause of an
  // overflow.
  bool exhausted() const { return state_.scale <= options_.smallest_scale; }
  // Adapts the scale after a step; `overflow`: true if some rank's gradients were not finite.
  // Returns true if the optimizer's step must be skipped. The new scale is for the next step.
  bool update(bool overflow);

  const State& state() const { return state_; }
  // Sets the state. Throws Error(invalid_argument) for an impossible state.
  void restore(const State& state);

 private:
  LossScalerOptions options_;
  State state_;
};

}  // namespace tutti::training
