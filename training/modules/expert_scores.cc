#include "training/modules/expert_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace tutti::training {

double log_sum_exp(std::span<const double> values) {
  const double largest = std::ranges::max(values);
  double sum = 0;
  for (const double value : values) sum += std::exp(value - largest);
  return largest + std::log(sum);
}

std::vector<double> normalized(std::vector<double> scores, ExpertScores kind) {
  if (kind == ExpertScores::softmax) return scores;
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  for (double& score : scores) score /= sum;
  return scores;
}

std::vector<double> normalized_backward(std::span<const double> x, std::span<const double> dy) {
  const double sum = std::accumulate(x.begin(), x.end(), 0.0);
  const double mean = std::inner_product(x.begin(), x.end(), dy.begin(), 0.0) / sum;
  std::vector<double> dx(x.size());
  for (size_t i = 0; i < x.size(); ++i) dx[i] = (dy[i] - mean) / sum;
  return dx;
}

std::vector<int32_t> largest(std::span<const double> values, int64_t count) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + count;
  std::partial_sort(order.begin(), end, order.end(), [&](int32_t a, int32_t b) {
    const double left = values[static_cast<size_t>(a)], right = values[static_cast<size_t>(b)];
    return left > right || (left == right && a < b);
  });
  order.erase(end, order.end());
  return order;
}

void keep_best_groups(std::vector<double>& scores, int64_t groups, int64_t kept) {
  const size_t size = scores.size() / static_cast<size_t>(groups);
  std::vector<double> sums;
  for (size_t first = 0; first < scores.size(); first += size) {
    const std::span<const double> group(scores.data() + first, size);
    double sum = 0;
    for (const int32_t best : largest(group, std::min<int64_t>(2, std::ssize(group)))) {
      sum += group[static_cast<size_t>(best)];
    }
    sums.push_back(sum);
  }
  const std::vector<int32_t> best = largest(sums, kept);
  for (size_t i = 0; i < scores.size(); ++i) {
    const bool is_best = std::ranges::find(best, static_cast<int32_t>(i / size)) != best.end();
    if (!is_best) scores[i] = -std::numeric_limits<double>::infinity();
  }
}

}  // namespace tutti::training
