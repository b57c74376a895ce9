#include "collectives/simulate/candidates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/text.h"
#include "collectives/simulate/simulate.h"
#include "topology/layout.h"

namespace tutti {

namespace {

constexpr int kFew = 256;

// Returns the length of a program. A step with many ranges takes as long to generate as many steps.
int64_t length_of(const Program& program) {
  int64_t length = 0;
  for (const Step& step : program.steps) {
    length += 1 + static_cast<int64_t>(step.src.size() + step.src2.size() + step.dst.size()) / 2;
  }
  return length;
}

// Returns the time that a rank's sends take one after another.
double rough_time(const Program& program, const Shape& shape, double chunk_bytes,
                  Network& network) {
  double us = 0;
  std::vector<Arc> arcs;
  for (const Step& step : program.steps) {
    if (step.kind != StepKind::send) continue;
    double bytes = 0;
    for (const ChunkRange& range : step.src) bytes += range.count * chunk_bytes;
    for (const int32_t peer : step.peers) {
      arcs.clear();
      const int ways = network.route(shape.rank, peer, arcs);
      if (ways == 0) return std::numeric_limits<double>::infinity();
      double GBps = std::numeric_limits<double>::infinity();
      for (const Arc arc : arcs) GBps = std::min(GBps, network.GBps(arc));
      us += network.slowest_us(arcs, ways) + bytes / ways / GBps * 1e-3;
    }
  }
  return us;
}

// Extrapolates an algorithm's time from the times on n, 2n and 4n ranks, which differ by d1 and d2:
// the difference grows by the factor d2/d1 at each further doubling. The result is infinite if the
// algorithm does not support so few ranks.
//
//   n    2n    4n      8n ...
//   |-d1-|--d2--|- d2 (d2/d1) -|        chain: d2/d1 = 2; tree: 1; bandwidth-bound: less
double extrapolated_us(const Algorithm& algorithm, const Shape& shape, int few, double bytes,
                       Network& network) {
  std::array<double, 3> times;
  int ranks = few;
  for (double& time : times) {
    Shape part{.ranks = ranks, .root = shape.root < ranks ? shape.root : 0};
    part.layout = Layout::of(network.places(ranks));
    if (!why_unsupported(algorithm, part).empty()) return std::numeric_limits<double>::infinity();
    const Schedule schedule = make_schedule(algorithm, part, {.alike = network.alike_group_size()});
    time = simulate(schedule, network, {.bytes = bytes}).time_us;
    ranks *= 2;
  }
  const double first = std::max(times[1] - times[0], 0.0);
  double difference = std::max(times[2] - times[1], 0.0);
  const double ratio = first > 0 ? std::min(difference / first, 2.0) : 1;
  double us = times[2];
  for (ranks /= 2; ranks < shape.ranks; ranks *= 2) us += difference *= ratio;
  return us;
}

}  // namespace

std::vector<SimulationCandidate> simulation_candidates(Collective collective, const Shape& shape,
                                                       double bytes, Network& network,
                                                       int64_t most_steps) {
  std::vector<SimulationCandidate> candidates;
  for (const Algorithm* algorithm : algorithms_for(collective)) {
    SimulationCandidate& candidate = candidates.emplace_back();
    candidate.algorithm = algorithm;
    if (grade_of(*algorithm, shape) < Grade::same_bits) {
      candidate.excluded = "its ranks may get different bits";
      continue;
    }
    candidate.excluded = why_unsupported(*algorithm, shape);
    if (!candidate.excluded.empty()) continue;
    int too_long = 0;  // a few ranks may have much longer programs than the others
    for (const int32_t rank : {shape.ranks / 2, 0, shape.ranks - 1}) {
      Shape one = shape;
      one.rank = rank;
      const Program program = program_of(*algorithm, one);
      if (length_of(program) * shape.ranks > most_steps && ++too_long == 2) {
        candidate.excluded =
            cat("more than ", most_steps, " steps, or parts of them, over all ranks");
        candidate.too_long = true;
        break;
      }
      const double chunk = bytes / buffer_chunks(collective, program, shape.ranks);
      candidate.rough_us = std::max(candidate.rough_us, rough_time(program, one, chunk, network));
    }
  }
  // With many ranks, the time depends mostly on how long the chains of messages across ranks are,
  // which cannot be seen from one rank's sends.
  const int host = network.alike_group_size();
  const int few = (kFew + host - 1) / host * host;
  const bool extrapolates = shape.ranks >= kManyRanks && 4 * few <= shape.ranks;
  for (SimulationCandidate& candidate : candidates) {
    if (!extrapolates || !candidate.excluded.empty()) continue;
    const double us = extrapolated_us(*candidate.algorithm, shape, few, bytes, network);
    if (std::isfinite(us)) candidate.rough_us = us;
  }
  std::ranges::stable_sort(candidates, [](const auto& a, const auto& b) {
    if (a.excluded.empty() != b.excluded.empty()) return a.excluded.empty();
    return a.rough_us < b.rough_us;
  });
  return candidates;
}

}  // namespace tutti
