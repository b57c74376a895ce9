// The numbers by which experts are chosen (router.h): rows of logits and scores.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::training {

enum class ExpertScores : uint8_t { softmax, sigmoid };

double log_sum_exp(std::span<const double> values);
// A token's scores as probabilities, for the balance loss.
std::vector<double> normalized(std::vector<double> scores, ExpertScores kind);
// The gradient of x, where y = x / the sum of x, given that of y.
std::vector<double> normalized_backward(std::span<const double> x, std::span<const double> dy);
// The numbers of the `count` largest, the largest first; of equals the first.
std::vector<int32_t> largest(std::span<const double> values, int64_t count);
// Keeps the scores of the `kept` best of `groups` groups that lie side by side, and sets the others
// to -infinity. A group is as good as the sum of its two best scores.
void keep_best_groups(std::vector<double>& scores, int64_t groups, int64_t kept);

}  // namespace tutti::training
