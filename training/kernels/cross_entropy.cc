#include "training/kernels/cross_entropy.h"

#include "base/text.h"
#include "training/kernels/loops.h"

namespace tutti::training {
namespace {

void check_targets(ConstTensor logits, std::span<const int32_t> targets) {
  for (const int32_t target : targets) {
    if (target < logits.cols) continue;
    throw Error(ErrorCode::invalid_argument,
                cat("the data has the class or token ", target, ", the model ", logits.cols),
                {.cause = "the model is made for another tokenizer or data set",
                 .remedy = "give the model as many classes (--vocabulary) as the data has"});
  }
}

}  // namespace

int64_t cross_entropy(ConstTensor logits, std::span<const int32_t> targets,
                      std::span<double> losses, Tensor statistics) {
  require_shapes(logits.contiguous() && std::ssize(targets) == logits.rows &&
                     std::ssize(losses) == logits.rows && statistics.size() == 2 * logits.rows,
                 "cross_entropy");
  check_targets(logits, targets);
  return kernels::loops(logits.dtype)
      .cross_entropy(logits.data, targets.data(), losses.data(), statistics.data, logits.rows,
                     logits.cols);
}

void cross_entropy_backward(ConstTensor logits, std::span<const int32_t> targets,
                            ConstTensor statistics, double scale, Tensor logits_gradient) {
  require_shapes(logits.contiguous() && logits_gradient.contiguous() &&
                     logits.size() == logits_gradient.size() &&
                     std::ssize(targets) == logits.rows && statistics.size() == 2 * logits.rows,
                 "cross_entropy_backward");
  kernels::loops(logits.dtype)
      .cross_entropy_backward(logits.data, targets.data(), statistics.data, logits_gradient.data,
                              logits.rows, logits.cols, scale);
}

}  // namespace tutti::training
