// Order of summation in deterministic mode, which makes the bits of a result independent of the
// number of tensor ranks. A computation that they share is done in `slices` parts of the finest
// cut, each by itself: a rank computes slices / ranks of them. Sums over slices follow one binary
// tree:
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

// Calls add(into, term) for the pairs of [0, count) in the tree's order; the sum ends up in 0.
template <typename Add>
void add_up_in_order(int count, const Add& add) {
  for (int distance = 1; distance < count; distance *= 2) {
    for (int into = 0; into + distance < count; into += 2 * distance) add(into, into + distance);
  }
}

// Sums lists of numbers element by element; `terms` has at least one list.
inline std::vector<double> sum_of_lists(std::vector<std::vector<double>> terms) {
  add_up_in_order(static_cast<int>(terms.size()), [&](int into, int term) {
    std::vector<double>& sum = terms[static_cast<size_t>(into)];
    std::ranges::transform(sum, terms[static_cast<size_t>(term)], sum.begin(), std::plus<>());
  });
  return std::move(terms.front());
}

}  // namespace tutti::training
