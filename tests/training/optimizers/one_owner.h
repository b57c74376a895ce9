// A single owner of some parameters, trained on synthetic gradients. References in the tests use
// the same numbers.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "training/optimizers/optimizer.h"
#include "training/optimizers/whole_matrices.h"

namespace tutti::training {

// Floats in [-0.5, 0.5) from a linear congruential generator: x = 1664525 x + 1013904223 modulo
// 2^32, of which the upper 24 bits are used.
inline std::vector<float> made_up(int64_t count, uint32_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525U + 1013904223U;
    values.push_back(static_cast<float>(seed >> 8) * 0x1p-24F - 0.5F);
  }
  return values;
}

class OneOwner {
 public:
  // The initial values of parameter k are made_up(count, k + 1).
  OneOwner(Optimizer& optimizer, std::vector<ParameterSpec> specs, int units)
      : optimizer_(optimizer), specs_(std::move(specs)), units_(units) {
    for (size_t k = 0; k < specs_.size(); ++k) {
      const int64_t count = specs_[k].count();
      values.push_back(made_up(count, static_cast<uint32_t>(k) + 1));
      pieces_.push_back({.piece = {.parameter = static_cast<int>(k), .count = count},
                         .spec = &specs_[k],
                         .master = values.back()});
    }
    const auto floats = static_cast<size_t>(optimizer.place_states(pieces_));
    states_.resize(optimizer.state_names().size(), std::vector<float>(floats));
    const auto states_of = [this](const ParameterSpec& spec) {
      return optimizer_.whole_states(spec, units_);
    };
    const auto has_states = [&](const ParameterSpec& spec) { return !states_of(spec).empty(); };
    whole_ = WholeStates(specs_, computed_here(pieces_, has_states, nullptr), states_of);
    whole_memory_.resize(static_cast<size_t>(whole_.floats()));
    whole_.set_memory(whole_memory_.data());
  }
  OneOwner(const OneOwner&) = delete;
  OneOwner& operator=(const OneOwner&) = delete;

  // The gradient of parameter k is made_up(count, 100 step + k) times `scale`.
  void step(int64_t step, double learning_rate, float scale) {
    std::vector<std::vector<float>> gradients;
    for (size_t k = 0; k < pieces_.size(); ++k) {
      gradients.push_back(
          made_up(specs_[k].count(), static_cast<uint32_t>(100 * step) + static_cast<uint32_t>(k)));
      for (float& value : gradients.back()) value *= scale;
      pieces_[k].gradient = tensor_at(gradients.back().data(), DType::f32, 1, specs_[k].count());
    }
    const std::vector<std::span<float>> states(states_.begin(), states_.end());
    NormReducer alone;
    optimizer_.step(pieces_, states,
                    {.step = step,
                     .learning_rate = learning_rate,
                     .parameters = static_cast<int>(specs_.size()),
                     .units = units_,
                     .whole = &whole_},
                    alone);
  }

  const WholeStates& whole() const { return whole_; }

  std::vector<std::vector<float>> values;

 private:
  Optimizer& optimizer_;
  std::vector<ParameterSpec> specs_;
  int units_;
  std::vector<OwnedPiece> pieces_;
  std::vector<std::vector<float>> states_;
  WholeStates whole_;
  std::vector<float> whole_memory_;
};

}  // namespace tutti::training
