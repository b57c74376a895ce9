#include <atomic>
#include <numeric>

#include "base/text.h"
#include "training/core/thread_pool.h"
#include "training/kernels/cpu/kernels.h"
#include "training/kernels/cpu/loops.h"

namespace tutti::training::cpu {
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

Later<Loss> cross_entropy(ConstTensor logits, std::span<const int32_t> targets, Tensor losses,
                          Tensor statistics) {
  require_shapes(logits.contiguous() && std::ssize(targets) == logits.rows &&
                     losses.size() == logits.rows && statistics.rows == logits.rows &&
                     statistics.cols == 2,
                 "cross_entropy");
  check_targets(logits, targets);
  const auto loop = kernels::loops(logits.dtype).cross_entropy;
  const std::span<double> by_row = losses.values<double>();
  std::atomic<int64_t> correct = 0;
  parallel_rows(logits.rows, logits.cols, [&](int64_t first, int64_t count) {
    correct +=
        loop(logits.at(first, 0), &targets[static_cast<size_t>(first)],
             &by_row[static_cast<size_t>(first)], statistics.at(first, 0), count, logits.cols);
  });
  return Loss{std::accumulate(by_row.begin(), by_row.end(), 0.0), correct};
}

void cross_entropy_backward(ConstTensor logits, std::span<const int32_t> targets,
                            ConstTensor statistics, double scale, Tensor logits_gradient) {
  require_shapes(logits.contiguous() && logits_gradient.contiguous() &&
                     logits.size() == logits_gradient.size() &&
                     std::ssize(targets) == logits.rows && statistics.rows == logits.rows &&
                     statistics.cols == 2,
                 "cross_entropy_backward");
  const auto loop = kernels::loops(logits.dtype).cross_entropy_backward;
  parallel_rows(logits.rows, logits.cols, [&](int64_t first, int64_t count) {
    loop(logits.at(first, 0), &targets[static_cast<size_t>(first)], statistics.at(first, 0),
         logits_gradient.at(first, 0), count, logits.cols, scale);
  });
}

}  // namespace tutti::training::cpu
