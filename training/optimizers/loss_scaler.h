// Dynamic loss scaling: keeps fp16 gradients from vanishing (Micikevicius et al.: Mixed precision
// training, ICLR 2018).
#pragma once

#include <cstdint>

namespace tutti::training {

struct LossScalerOptions {
  double initial_scale = 65536;
  double growth = 2;               // above 1
  double backoff = 0.5;            // in (0, 1)
  int64_t growth_interval = 2000;  // steps without overflow before the scale grows
  // Overflows, since the scale last grew, before it shrinks: 1 is at once (Megatron-LM).
  int hysteresis = 1;
  double smallest_scale = 1;
};

// The loss is multiplied by scale() before backward, the gradients by 1 / scale() afterwards; a
// step whose gradients overflowed is left out. With a hysteresis of 1 as torch.amp.GradScaler.
// Every rank must pass the same `overflow`, and has the same scale then. Not thread-safe.
class LossScaler {
 public:
  // What a checkpoint keeps.
  struct State {
    double scale = 0;
    int64_t good_steps = 0;  // since the last overflow or growth
    int overflows_left = 0;  // before the scale shrinks
    bool operator==(const State&) const = default;
  };

  // Throws Error(invalid_argument) for options out of range.
  explicit LossScaler(const LossScalerOptions& options = {});

  double scale() const { return state_.scale; }
  // Whether it can shrink no more: an overflow is not its fault then.
  bool exhausted() const { return state_.scale <= options_.smallest_scale; }
  // After each step: whether any rank's gradients were not finite. Returns whether to skip the
  // optimizer's step; the new scale is for the next one.
  bool update(bool overflow);

  const State& state() const { return state_; }
  // Throws Error(invalid_argument) for a state that no scaler can have.
  void restore(const State& state);

 private:
  LossScalerOptions options_;
  State state_;
};

}  // namespace tutti::training
