#include "training/modules/softmax_cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "training/kernels.h"

namespace tutti::training {

double SoftmaxCrossEntropy::forward(ConstMatrix logits, std::span<const uint8_t> targets) {
  targets_ = targets;
  const Matrix probabilities = probabilities_.resize(logits.rows, logits.cols);
  softmax(logits, probabilities);
  double loss = 0;
  for (int64_t row = 0; row < logits.rows; ++row) {
    // A target's probability may underflow, the largest one cannot: start from that.
    const std::span<const float> logit = logits.row(row);
    const auto top = std::ranges::max_element(logit) - logit.begin();
    loss += static_cast<double>(logit[top]) - logit[targets[row]] -
            std::log(static_cast<double>(probabilities.row(row)[top]));
  }
  return loss;
}

ConstMatrix SoftmaxCrossEntropy::backward(float scale) {
  const Matrix gradient = probabilities_.view();
  for (int64_t row = 0; row < gradient.rows; ++row) gradient.row(row)[targets_[row]] -= 1.0f;
  for (float& value : gradient.values()) value *= scale;
  return gradient;
}

}  // namespace tutti::training
