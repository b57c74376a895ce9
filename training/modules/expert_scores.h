// Arithmetic of routers (router.h) on rows of logits and scores.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::training {

enum class ExpertScores : uint8_t { softmax, sigmoid };

double log_sum_exp(std::span<const double> values);
// A token's scores, normalized to probabilities for the balance loss.
std::vector<double> normalized(std::vector<double> scores, ExpertScores kind);
// Given the gradient of y = x / sum(x), returns the gradient of x.
std::vector<double> normalized_backward(std::span<const double> x, std::span<const double> dy);
// Indices of the `count` largest values in descending order; ties in ascending order of index.
std::vector<int32_t> largest(std::span<const double> values, int64_t count);
// Sets to -infinity the scores outside of the best `kept` of `groups` equal groups of consecutive
// experts. The rank of a group is the sum of its two best scores.
void keep_best_groups(std::vector<double>& scores, int64_t groups, int64_t kept);

}  // namespace tutti::training
