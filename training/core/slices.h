// Fixes the order of summation in deterministic mode, so that the bits of a result do not depend on
// the number of tensor-parallel ranks. A computation that tensor-parallel ranks share is divided
// into `slices` parts, as many as the largest number of ranks would need. Each rank computes slices
// / ranks of these parts, each separately. Sums over slices follow one binary tree:
//
//   slices   0 1 2 3 4 5 6 7         2 ranks have a half of the tree each, 4 ranks a quarter
//            |+| |+| |+| |+|
//            |-+-|   |-+-|
//            |---+---|
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace tutti::training {

// Calls add(into, term) for pairs of indices in [0, count), in the tree's order. Afterwards the sum
// is at index 0.
template <typename Add>
void add_up_in_order(int count, const Add& add) {
  for (int distance = 1; distance < count; distance *= 2) {
    for (int into = 0; into + distance < count; into += 2 * distance) add(into, into + distance);
  }
}

// Sums lists of numbers element by element, in the tree's order. `terms` has at least one list.
inline std::vector<double> sum_of_lists(std::vector<std::vector<double>> terms) {
  add_up_in_order(static_cast<int>(terms.size()), [&](int into, int term) {
    std::vector<double>& sum = terms[static_cast<size_t>(into)];
    std::ranges::transform(sum, terms[static_cast<size_t>(term)], sum.begin(), std::plus<>());
  });
  return std::move(terms.front());
}

}  // namespace tutti::training
