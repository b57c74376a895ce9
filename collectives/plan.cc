#include "collectives/plan.h"

#include <algorithm>
#include <utility>

namespace tutti {

namespace {

// Chunks that may be the same memory get the same number: every call is treated as if in place.
int64_t location(const Plan& plan, Space space, int32_t chunk) {
  const int64_t input_base = 0;
  const int64_t scratch_base = int64_t{1} << 32;
  const int32_t own = plan.shape.rank * chunks_per_block(plan.collective, plan.program);
  if (space == Space::scratch) return scratch_base + chunk;
  if (plan.collective == Collective::all_gather && space == Space::input)
    return input_base + own + chunk;
  if (plan.collective == Collective::reduce_scatter && space == Space::output) {
    return input_base + own + chunk;
  }
  return input_base + chunk;
}

using Locations = std::vector<int64_t>;

void add(const Plan& plan, const RangeList& ranges, Locations& locations) {
  for (const ChunkRange& range : ranges) {
    for (int32_t i = 0; i < range.count; ++i) {
      locations.push_back(location(plan, range.space, range.first + i));
    }
  }
}

bool intersect(const Locations& a, const Locations& b) {
  return std::ranges::any_of(a, [&](int64_t x) { return std::ranges::find(b, x) != b.end(); });
}

void find_dependencies(Plan& plan) {
  const size_t count = plan.program.steps.size();
  plan.words = static_cast<int32_t>(std::max<size_t>(1, (count + 63) / 64));
  plan.needs.assign(count * plan.words, 0);
  plan.all.assign(plan.words, 0);
  std::vector<Locations> reads(count);
  std::vector<Locations> writes(count);
  for (size_t i = 0; i < count; ++i) {
    const Step& step = plan.program.steps[i];
    add(plan, step.src, reads[i]);
    add(plan, step.src2, reads[i]);
    add(plan, step.dst, writes[i]);
    plan.all[i / 64] |= uint64_t{1} << (i % 64);
    // A token says "all before this is done here".
    const bool sends_token = step.kind == StepKind::send && step.src.empty();
    for (size_t j = 0; j < i; ++j) {
      const bool received = plan.program.steps[j].kind == StepKind::recv;
      if ((sends_token && received) || intersect(reads[i], writes[j]) ||
          intersect(writes[i], writes[j]) || intersect(writes[i], reads[j])) {
        plan.needs[i * plan.words + j / 64] |= uint64_t{1} << (j % 64);
      }
    }
  }
}

void sort_into_queues(Plan& plan) {
  const auto queue = [&](Plan::QueueKind kind, int32_t peer) {
    for (size_t i = 0; i < plan.queues.size(); ++i) {
      if (plan.queues[i].kind == kind && plan.queues[i].peer == peer)
        return static_cast<int32_t>(i);
    }
    plan.queues.push_back({kind, peer, {}});
    return static_cast<int32_t>(plan.queues.size() - 1);
  };
  plan.send_queues.resize(plan.program.steps.size());
  for (size_t i = 0; i < plan.program.steps.size(); ++i) {
    const Step& step = plan.program.steps[i];
    const auto number = static_cast<int32_t>(i);
    switch (step.kind) {
      case StepKind::send:
        for (const int32_t peer : step.peers) {
          const int32_t q = queue(Plan::QueueKind::send, peer);
          plan.queues[q].steps.push_back(number);
          if (step.peers.size() > 1) plan.send_queues[i].push_back(q);
        }
        break;
      case StepKind::recv:
      case StepKind::recv_reduce:
        plan.queues[queue(Plan::QueueKind::recv, step.peers[0])].steps.push_back(number);
        break;
      case StepKind::reduce:
      case StepKind::copy:
        plan.queues[queue(Plan::QueueKind::local, -1)].steps.push_back(number);
        break;
    }
  }
}

}  // namespace

int32_t chunks_per_block(Collective collective, const Program& program) {
  return collective == Collective::reduce_scatter ? program.output_chunks : program.input_chunks;
}

Plan make_plan(Collective collective, const Shape& shape, Program program) {
  Plan plan;
  plan.collective = collective;
  plan.shape = shape;
  plan.program = std::move(program);
  find_dependencies(plan);
  sort_into_queues(plan);
  return plan;
}

}  // namespace tutti
