// Arithmetic of routers (router.h) on rows of logits or scores.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::training {

enum class ExpertScores : uint8_t { softmax, sigmoid };

double log_sum_exp(std::span<const double> values);
// Returns a token's scores, normalized to probabilities for the balance loss.
std::vector<double> normalized(std::vector<double> scores, ExpertScores kind);
// Returns the gradient of x, given the gradient `dy` of y = x / sum(x).
std::vector<double> normalized_backward(std::span<const double> x, std::span<const double> dy);
// Returns the indices of the `count` largest values in descending order; ties are in ascending
// order of index.
std::vector<int32_t> largest(std::span<const double> values, int64_t count);
// Divides the experts into `groups` equal groups of consecutive experts. Keeps the scores of the
// best `kept` groups and sets all other scores to -infinity. Groups are compared by the sum of
// their two best scores.
void keep_best_groups(std::vector<double>& scores, int64_t groups, int64_t kept);

}  // namespace tutti::training
