#include "collectives/planner.h"

#include "base/error.h"
#include "base/text.h"

namespace tutti {

double estimate(const Algorithm& algorithm, int ranks, uint64_t bytes, const CostModel& model) {
  const Cost cost = algorithm.cost(ranks);
  const auto n = static_cast<double>(bytes);
  return cost.messages * model.alpha + cost.moved * n * model.beta + cost.reduced * n * model.gamma;
}

const Algorithm* cheapest(std::span<const Algorithm> candidates, Collective collective, int ranks,
                          uint64_t bytes, Grade at_least) {
  const Algorithm* best = nullptr;
  double best_time = 0;
  for (const Algorithm& candidate : candidates) {
    if (candidate.collective != collective || candidate.grade < at_least) continue;
    if (!candidate.supports(ranks).empty()) continue;
    const double time = estimate(candidate, ranks, bytes);
    if (best == nullptr || time < best_time) {
      best = &candidate;
      best_time = time;
    }
  }
  return best;
}

const Algorithm& choose_algorithm(Collective collective, int ranks, uint64_t bytes) {
  const Algorithm* best = cheapest(all_algorithms(), collective, ranks, bytes, Grade::same_bits);
  if (best != nullptr) return *best;
  throw Error(ErrorCode::unsupported,
              cat("no algorithm for ", name(collective), " runs on ", ranks, " ranks"));
}

}  // namespace tutti
