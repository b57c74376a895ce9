#include "collectives/program/plan.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tutti {

namespace {

// Accesses so far to one place, a range of chunks that every step accesses as a whole or not at
// all.
struct Past {
  int32_t writer = -1;
  std::vector<int32_t> readers;  // steps that read since the last write
};

class Dependencies {
 public:
  Dependencies(Plan& plan, bool in_place) : plan_(plan) {
    const Program& program = plan.program;
    if (!in_place) {
      output_ = 1 + std::max(location_of(Space::input, program.input_chunks - 1), int64_t{-1});
    }
    scratch_ = 1 + std::max({location_of(Space::input, program.input_chunks - 1),
                             location_of(Space::output, program.output_chunks - 1), int64_t{-1}});
    cut();
    past_.resize(cuts_.size());
  }

  void find() {
    const std::vector<Step>& steps = plan_.program.steps;
    std::vector<int32_t> received;  // indices of the recv steps so far
    plan_.first_need.assign(1, 0);
    for (size_t i = 0; i < steps.size(); ++i) {
      const Step& step = steps[i];
      step_ = static_cast<int32_t>(i);
      found_.clear();
      // A token is sent when all earlier recv steps are done.
      if (step.kind == StepKind::send && step.src.empty()) found_ = received;
      for (const RangeList* ranges : {&step.src, &step.src2})
        for_each_place(*ranges, &Dependencies::read);
      for_each_place(step.dst, &Dependencies::write);
      std::ranges::sort(found_);
      found_.erase(std::ranges::unique(found_).begin(), found_.end());
      plan_.needs.insert(plan_.needs.end(), found_.begin(), found_.end());
      plan_.first_need.push_back(static_cast<int32_t>(plan_.needs.size()));
      if (step.kind == StepKind::recv) received.push_back(step_);
    }
  }

 private:
  // Finds the cuts, which are the starts and the ends of all ranges that steps access. The chunks
  // between two neighbouring cuts form one place, because no step accesses only some of them.
  // (Steps may have thousands of chunks.)
  void cut() {
    for (const Step& step : plan_.program.steps) {
      for (const RangeList* ranges : {&step.src, &step.src2, &step.dst}) {
        for (const ChunkRange& range : *ranges) {
          const int64_t first = location_of(range.space, range.first);
          cuts_.push_back(first);
          cuts_.push_back(first + range.count);
        }
      }
    }
    std::ranges::sort(cuts_);
    cuts_.erase(std::ranges::unique(cuts_).begin(), cuts_.end());
  }
  void for_each_place(const RangeList& ranges, void (Dependencies::*visit)(Past&)) {
    for (const ChunkRange& range : ranges) {
      const int64_t first = location_of(range.space, range.first);
      auto place = static_cast<size_t>(std::ranges::lower_bound(cuts_, first) - cuts_.begin());
      for (; cuts_[place] < first + range.count; ++place) (this->*visit)(past_[place]);
    }
  }
  // Returns the location of a chunk. The chunks of a range have consecutive locations.
  int64_t location_of(Space space, int32_t chunk) const {
    if (space == Space::scratch) return scratch_ + chunk;
    return location(plan_.collective, plan_.program, plan_.shape, space, chunk) +
           (space == Space::output ? output_ : 0);
  }
  void read(Past& past) {
    need(past.writer);
    past.readers.push_back(step_);
  }
  // Records a write. Readers since the last write already depend on that write.
  void write(Past& past) {
    if (past.readers.empty()) need(past.writer);
    for (const int32_t reader : past.readers) need(reader);
    past.writer = step_;
    past.readers.clear();
  }
  void need(int32_t step) {
    if (step >= 0 && step != step_) found_.push_back(step);
  }

  Plan& plan_;
  // Offset of the locations of output chunks. It is 0 in place, so that they equal the locations of
  // input chunks; otherwise output chunks are located behind the input.
  int64_t output_ = 0;
  int64_t scratch_ = 0;  // location of the first scratch chunk, behind all others
  std::vector<int64_t> cuts_;
  std::vector<Past> past_;      // by place: entry i is for the chunks between cuts i and i + 1
  std::vector<int32_t> found_;  // dependencies of the current step
  int32_t step_ = 0;
};

void sort_into_queues(Plan& plan) {
  std::map<std::pair<Plan::QueueKind, int32_t>, int32_t> numbers;
  const auto queue = [&](Plan::QueueKind kind, int32_t peer) {
    const auto [place, is_new] =
        numbers.try_emplace({kind, peer}, static_cast<int32_t>(plan.queues.size()));
    if (is_new) plan.queues.push_back({kind, peer, {}});
    return place->second;
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

void write_as_bits(Plan& plan) {
  const size_t steps = plan.program.steps.size();
  if (steps == 0 || steps > Plan::kFew) return;
  plan.all_steps = ~uint64_t{0} >> (Plan::kFew - steps);
  const auto bit = [](int32_t step) { return uint64_t{1} << step; };
  plan.before.resize(steps);
  for (size_t i = 0; i < steps; ++i) {
    for (const int32_t need : plan.needs_of(static_cast<int32_t>(i))) {
      plan.before[i].finished |= bit(need);
    }
  }
  for (const Plan::Queue& queue : plan.queues) {
    for (size_t i = 1; i < queue.steps.size(); ++i) {
      plan.before[queue.steps[i]].begun |= bit(queue.steps[i - 1]);
    }
  }
}

}  // namespace

Plan make_plan(Collective collective, const Shape& shape, Program program, bool in_place) {
  Plan plan;
  plan.collective = collective;
  plan.shape = shape;
  plan.program = std::move(program);
  Dependencies(plan, in_place).find();
  sort_into_queues(plan);
  write_as_bits(plan);
  return plan;
}

std::vector<Plan> make_plans(const Algorithm& algorithm, Shape shape, Arithmetic arithmetic,
                             bool in_place) {
  std::vector<Plan> plans;
  plans.reserve(static_cast<size_t>(shape.ranks));
  for (shape.rank = 0; shape.rank < shape.ranks; ++shape.rank) {
    plans.push_back(
        make_plan(algorithm.collective, shape, program_of(algorithm, shape, arithmetic), in_place));
  }
  return plans;
}

}  // namespace tutti
