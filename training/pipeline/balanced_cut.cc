#include <algorithm>
#include <cstddef>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "training/pipeline/partition.h"

namespace tutti::training::pipeline {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kMost = 1e100;  // limit that keeps squares and sums finite

// best[c][j]: the least value of a cut of the first j units into c chunks. last[c][j]: the first
// unit of the last chunk of that cut; the lowest if several cuts have this value.
struct Cuts {
  std::vector<std::vector<double>> best;
  std::vector<std::vector<size_t>> last;
};

// Computes the best cuts. `extend` returns the value of a cut with one more chunk, given the cut's
// value and that chunk's cost.
template <typename Extend>
Cuts best_cuts(std::span<const double> costs, size_t chunks, Extend extend) {
  const size_t units = costs.size();
  Cuts cuts{{chunks + 1, std::vector<double>(units + 1, kNever)},
            {chunks + 1, std::vector<size_t>(units + 1, 0)}};
  cuts.best[0][0] = 0;
  for (size_t c = 1; c <= chunks; ++c) {
    for (size_t j = c; j <= units; ++j) {
      // Goes from the shortest last chunk to the longest, to sum its cost incrementally.
      double cost = 0;
      for (size_t i = j; i-- >= c;) {
        cost += costs[i];
        const double value = extend(cuts.best[c - 1][i], cost);
        if (value > cuts.best[c][j] || value == kNever) continue;
        cuts.best[c][j] = value;
        cuts.last[c][j] = i;
      }
    }
  }
  return cuts;
}

}  // namespace

std::vector<int> balanced_cut(std::span<const double> unit_costs, int chunks) {
  if (chunks < 1 || static_cast<size_t>(chunks) > unit_costs.size()) {
    throw Error(
        ErrorCode::invalid_argument,
        cat(unit_costs.size(), " units (layers, embedding, output layer) cannot be divided into ",
            chunks, " chunks"),
        {.cause = "each chunk needs at least one unit",
         .remedy = "use fewer pipeline stages or virtual stages, or more layers"});
  }
  for (size_t unit = 0; unit < unit_costs.size(); ++unit) {
    if (unit_costs[unit] >= 0 && unit_costs[unit] <= kMost) continue;
    throw Error(ErrorCode::invalid_argument,
                cat("the cost of unit ", unit, " is ", unit_costs[unit]),
                {.remedy = "use costs of at least 0"});
  }
  const auto count = static_cast<size_t>(chunks);
  const double slowest = best_cuts(unit_costs, count, [](double so_far, double cost) {
                           return std::max(so_far, cost);
                         }).best[count][unit_costs.size()];
  const Cuts cuts = best_cuts(unit_costs, count, [&](double so_far, double cost) {
    return cost > slowest ? kNever : so_far + cost * cost;
  });
  std::vector<int> firsts(count);
  size_t end = unit_costs.size();
  for (size_t c = count; c > 0; --c) {
    end = cuts.last[c][end];
    firsts[c - 1] = static_cast<int>(end);
  }
  return firsts;
}

}  // namespace tutti::training::pipeline
