#include "training/optimizers/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "training/optimizers/optimizer.h"

namespace tutti::training {

LossScaler::LossScaler(const LossScalerOptions& options) : options_(options) {
  check_option(options.growth > 1, "loss scale growth", options.growth, "above 1");
  check_option(options.backoff > 0 && options.backoff < 1, "loss scale backoff", options.backoff,
               "in (0, 1)");
  check_option(options.growth_interval >= 1, "loss scale growth interval",
               static_cast<double>(options.growth_interval), "of at least 1");
  check_option(options.hysteresis >= 1, "loss scale hysteresis", options.hysteresis,
               "of at least 1");
  check_option(options.smallest_scale > 0, "smallest loss scale", options.smallest_scale,
               "above 0");
  restore({options.initial_scale, 0, options.hysteresis});
}

bool LossScaler::update(bool overflow) {
  if (overflow) {
    state_.good_steps = 0;
    state_.overflows_left = std::max(0, state_.overflows_left - 1);
    if (state_.overflows_left == 0) {
      state_.scale = std::max(state_.scale * options_.backoff, options_.smallest_scale);
    }
    return true;
  }
  if (++state_.good_steps < options_.growth_interval) return false;
  state_.good_steps = 0;
  state_.overflows_left = options_.hysteresis;
  const double grown = state_.scale * options_.growth;
  // The scale must be finite as a float, the type of the loss.
  if (std::isfinite(static_cast<float>(grown))) state_.scale = grown;
  return false;
}

void LossScaler::restore(const State& state) {
  check_option(state.scale > 0 && std::isfinite(state.scale), "loss scale", state.scale,
               "above 0 and finite");
  check_option(state.good_steps >= 0, "number of steps without overflow",
               static_cast<double>(state.good_steps), "of at least 0");
  check_option(state.overflows_left >= 0, "number of overflows left", state.overflows_left,
               "of at least 0");
  state_ = state;
}

}  // namespace tutti::training
