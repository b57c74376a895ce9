#include "training/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tutti::training {
namespace {

float decay_of(const ParameterSlot& slot, DecayOn decay_on, float weight_decay) {
  return decay_on == DecayOn::all || slot.is_matrix() ? weight_decay : 0.0f;
}

}  // namespace

void Sgd::step(Parameters& parameters, float learning_rate) {
  const std::span<float> values = parameters.values();
  const std::span<const float> gradients = parameters.gradients();
  const bool first = momentum_.empty();
  if (first) momentum_.resize(values.size());
  for (const ParameterSlot& slot : parameters.layout().slots) {
    const float decay = decay_of(slot, options_.decay_on, options_.weight_decay);
    for (size_t i = slot.offset; i < slot.offset + slot.count; ++i) {
      const float gradient = gradients[i] + decay * values[i];
      momentum_[i] = first ? gradient : options_.momentum * momentum_[i] + gradient;
      const float update =
          options_.nesterov ? gradient + options_.momentum * momentum_[i] : momentum_[i];
      values[i] -= learning_rate * update;
    }
  }
}

void AdamW::step(Parameters& parameters, float learning_rate) {
  const std::span<float> values = parameters.values();
  const std::span<const float> gradients = parameters.gradients();
  first_moment_.resize(values.size());
  second_moment_.resize(values.size());
  ++steps_;
  const double step = static_cast<double>(steps_);
  const double correction1 = 1.0 - std::pow(static_cast<double>(options_.beta1), step);
  const double correction2 = 1.0 - std::pow(static_cast<double>(options_.beta2), step);
  const float step_size = static_cast<float>(learning_rate / correction1);
  const float root_correction = static_cast<float>(std::sqrt(correction2));
  const float beta1 = options_.beta1;
  const float beta2 = options_.beta2;
  for (const ParameterSlot& slot : parameters.layout().slots) {
    const float keep =
        1.0f - learning_rate * decay_of(slot, options_.decay_on, options_.weight_decay);
    for (size_t i = slot.offset; i < slot.offset + slot.count; ++i) {
      const float gradient = gradients[i];
      const float m = first_moment_[i] += (gradient - first_moment_[i]) * (1.0f - beta1);
      const float v = second_moment_[i] =
          beta2 * second_moment_[i] + (1.0f - beta2) * gradient * gradient;
      values[i] =
          keep * values[i] - step_size * m / (std::sqrt(v) / root_correction + options_.epsilon);
    }
  }
}

float LearningRateSchedule::at(int64_t step) const {
  if (step < warmup_steps) {
    return peak * static_cast<float>(step + 1) / static_cast<float>(warmup_steps);
  }
  const int64_t falling = std::max<int64_t>(1, total_steps - 1 - warmup_steps);
  const double progress =
      std::min(1.0, static_cast<double>(step - warmup_steps) / static_cast<double>(falling));
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return static_cast<float>(peak * (final_fraction + (1.0 - final_fraction) * cosine));
}

}  // namespace tutti::training
