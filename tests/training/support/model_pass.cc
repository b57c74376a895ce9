#include "tests/training/support/model_pass.h"

#include <ranges>

#include "training/core/random.h"

namespace tutti::training::testing {

TokenBatch::TokenBatch(int64_t samples, int64_t context, int64_t vocabulary,
                       uint64_t first_sample) {
  const auto length = static_cast<uint64_t>(context);
  const auto token = [&](uint64_t stream, uint64_t i) {
    const uint64_t bits = random_bits(17, stream, first_sample * length + i);
    return static_cast<int32_t>(scale_below(bits, static_cast<uint64_t>(vocabulary)));
  };
  for (uint64_t i = 0; i < static_cast<uint64_t>(samples) * length; ++i) {
    tokens.push_back(token(1, i));
    targets.push_back(token(2, i));
  }
  micro_batch = {
      .samples = samples, .first_sample = first_sample, .tokens = tokens, .targets = targets};
}

Tensor forward(Model& model, Pass& pass) {
  Tensor tensor;
  for (const auto& unit : model.units()) tensor = unit->forward(pass, tensor);
  return tensor;
}

void backward(Model& model, Pass& pass) {
  Tensor gradient;
  for (const auto& unit : std::views::reverse(model.units())) {
    gradient = unit->backward(pass, gradient);
  }
}

void finish_weights(Pass& pass) {
  for (const auto& work : pass.weight_work) work();
  pass.weight_work.clear();
}

}  // namespace tutti::training::testing
