#include <cmath>
#include <numeric>

#include "base/text.h"
#include "training/core/thread_pool.h"
#include "training/kernels/cpu/kernels.h"
#include "training/kernels/cpu/loops.h"

namespace tutti::training::cpu {
namespace {

void check_targets(int64_t classes, std::span<const int32_t> targets) {
  for (const int32_t target : targets) {
    if (target < classes) continue;
    throw Error(
        ErrorCode::invalid_argument,
        cat("the data has the class or token ", target, ", but the model has only ", classes),
        {.cause = "the model was created for another tokenizer or data set",
         .remedy = "use a model with as many classes (--vocabulary) as the data has"});
  }
}

// Computes losses and statistics; V is float or double.
template <typename V>
Loss finish(ConstTensor sums, std::span<const int32_t> targets, std::span<double> losses,
            std::span<V> statistics) {
  const std::span<const V> all = sums.values<V>();
  Loss loss;
  for (size_t row = 0; row < targets.size(); ++row) {
    losses[row] = 0;
    statistics[2 * row] = statistics[2 * row + 1] = V{0};
    if (targets[row] < 0) continue;
    const V largest = all[3 * row], target = all[3 * row + 2];
    const double logarithm = std::log(static_cast<double>(all[3 * row + 1]));
    losses[row] = logarithm + (static_cast<double>(largest) - static_cast<double>(target));
    statistics[2 * row] = largest;
    statistics[2 * row + 1] = static_cast<V>(logarithm);
    loss.correct += target == largest ? 1 : 0;
  }
  loss.sum = std::accumulate(losses.begin(), losses.end(), 0.0);
  return loss;
}

}  // namespace

void cross_entropy_sums(ConstTensor logits, std::span<const int32_t> targets, PartOf classes,
                        Tensor sums) {
  require_shapes(std::ssize(targets) == logits.rows && sums.rows == logits.rows && sums.cols == 3 &&
                     sums.contiguous(),
                 "cross_entropy_sums");
  check_targets(classes.all_of(logits.cols), targets);
  const auto loop = kernels::loops(logits.dtype).cross_entropy_sums;
  parallel_rows(logits.rows, logits.cols, [&](int64_t first, int64_t count) {
    loop(logits.at(first, 0), &targets[static_cast<size_t>(first)], classes.first,
         sums.at(first, 0), count, logits.cols, logits.stride);
  });
}

Later<Loss> cross_entropy(ConstTensor sums, std::span<const int32_t> targets, Tensor losses,
                          Tensor statistics) {
  require_shapes(sums.contiguous() && std::ssize(targets) == sums.rows && sums.cols == 3 &&
                     losses.size() == sums.rows && statistics.rows == sums.rows &&
                     statistics.cols == 2 && statistics.dtype == sums.dtype,
                 "cross_entropy");
  if (sums.dtype == DType::f64) {
    return finish<double>(sums, targets, losses.values<double>(), statistics.values<double>());
  }
  return finish<float>(sums, targets, losses.values<double>(), statistics.values<float>());
}

void cross_entropy_backward(ConstTensor logits, std::span<const int32_t> targets, PartOf classes,
                            ConstTensor statistics, double scale, Tensor logits_gradient) {
  require_shapes(logits.contiguous() && logits_gradient.contiguous() &&
                     logits.size() == logits_gradient.size() &&
                     std::ssize(targets) == logits.rows && statistics.rows == logits.rows &&
                     statistics.cols == 2,
                 "cross_entropy_backward");
  const auto loop = kernels::loops(logits.dtype).cross_entropy_backward;
  parallel_rows(logits.rows, logits.cols, [&](int64_t first, int64_t count) {
    loop(logits.at(first, 0), &targets[static_cast<size_t>(first)], classes.first,
         statistics.at(first, 0), logits_gradient.at(first, 0), count, logits.cols, scale);
  });
}

}  // namespace tutti::training::cpu
