#include "collectives/simulate/candidates.h"

#include <algorithm>
#include <limits>

#include "base/text.h"

namespace tutti {

namespace {

// What has many ranges in its steps takes as long to make as one of many steps.
int64_t length_of(const Program& program) {
  int64_t length = 0;
  for (const Step& step : program.steps) {
    length += 1 + static_cast<int64_t>(step.src.size() + step.src2.size() + step.dst.size()) / 2;
  }
  return length;
}

// A rank's sends one after the other.
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
    int too_long = 0;  // a few ranks may have much more to do than the others
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
  std::ranges::stable_sort(candidates, [](const auto& a, const auto& b) {
    if (a.excluded.empty() != b.excluded.empty()) return a.excluded.empty();
    return a.rough_us < b.rough_us;
  });
  return candidates;
}

}  // namespace tutti
