// The numbers by which experts are chosen (router.h): rows of logits and scores.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::training {

enum class ExpertScores : uint8_t { softmax, sigmoid };

double log_sum_exp(std::span<const double> values);
// What the balance loss takes for a token's probabilities.
std::vector<double> normalized(std::vector<double> scores, ExpertScores kind);
// The gradient of x, where y = x / the sum of x, given that of y.
std::vector<double> normalized_backward(std::span<const double> x, std::span<const double> dy);
// The numbers of the `count` largest, the largest first; of equals the first.
std::vector<int32_t> largest(std::span<const double> values, int64_t count);
// Of the groups in which scores lie, the scores of all but the best become 0: those with the
// largest sums of their two best.
void keep_best_groups(std::vector<double>& scores, int64_t groups, int64_t kept);

}  // namespace tutti::training
