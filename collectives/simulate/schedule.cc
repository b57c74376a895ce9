#include "collectives/simulate/schedule.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "collectives/program/plan.h"

namespace tutti {

namespace {

int32_t chunks_of(const Step& step) {
  int32_t chunks = 0;
  for (const ChunkRange& range : step.kind == StepKind::send ? step.src : step.dst) {
    chunks += range.count;
  }
  return chunks;
}

Plan plan_of(const Algorithm& algorithm, Shape shape, int32_t rank) {
  shape.rank = rank;
  return make_plan(algorithm.collective, shape, program_of(algorithm, shape));
}

class Builder {
 public:
  Builder(const Algorithm& algorithm, const Shape& shape, const ScheduleOptions& options,
          Schedule& schedule)
      : algorithm_(algorithm), shape_(shape), options_(options), schedule_(schedule) {}

  // Checks the length before all programs are generated. It is estimated from the shorter of two
  // ranks' programs, because the root's program may be much longer than the others.
  void refuse_if_too_long() const {
    int64_t steps = std::numeric_limits<int64_t>::max();
    for (const int32_t rank : {0, shape_.ranks / 2}) {
      Shape one = shape_;
      one.rank = rank;
      const auto its = static_cast<int64_t>(program_of(algorithm_, one).steps.size());
      steps = std::min(steps, its);
    }
    refuse_if_too_long(steps * shape_.ranks / options_.alike);
  }

  void build() {
    for (int32_t rank = 0; rank < shape_.ranks; rank += schedule_.alike) {
      add(plan_of(algorithm_, shape_, rank));
      if (options_.progress && rank % 1024 == 0) options_.progress(1.0 * rank / shape_.ranks);
    }
    const bool matched = schedule_.match([this](const StepGraph::Message& message) {
      return std::pair(message.to / schedule_.alike, seen_from_first(message));
    });
    if (matched) return;
    throw Error(ErrorCode::internal,
                cat("messages of ", algorithm_.name, " do not match on ", shape_.ranks, " ranks"));
  }

 private:
  void add(const Plan& plan) {
    const std::vector<Step>& steps = plan.program.steps;
    if (schedule_.steps() == 0) {
      schedule_.buffer_chunks = buffer_chunks(algorithm_.collective, plan.program, shape_.ranks);
    }
    refuse_if_too_long(static_cast<int64_t>(schedule_.steps()) +
                       static_cast<int64_t>(steps.size()));
    for (const Step& step : steps) {
      schedule_.kinds.push_back(step.kind);
      schedule_.chunks.push_back(chunks_of(step));
    }
    schedule_.add(plan);
  }

  void refuse_if_too_long(int64_t steps) const {
    if (steps <= options_.most_steps) return;
    throw Error(
        ErrorCode::unsupported,
        cat(name(algorithm_.collective), ' ', algorithm_.name, " on ", shape_.ranks, " ranks has ",
            steps > 2 * options_.most_steps ? cat("some ", steps) : "too many",
            " steps to simulate"),
        {.cause = cat("the limit is ", options_.most_steps, " steps over all ranks"),
         .remedy = "let Tutti choose the algorithm, or use fewer ranks"});
  }

  // Returns the sender of the corresponding message to rank 0 of the receiver's host. If ranks are
  // walked as one, a message to rank i of a host represents a message to rank 0 whose sender is
  // shifted back by i.
  int32_t seen_from_first(const StepGraph::Message& message) const {
    const int32_t size = schedule_.alike;
    const int32_t shift = message.to % size;
    const int32_t back = schedule_.symmetry == Symmetry::rotation ? (size - shift) % size : shift;
    return schedule_.image(message.from, back);
  }

  const Algorithm& algorithm_;
  const Shape& shape_;
  const ScheduleOptions& options_;
  Schedule& schedule_;
};

int32_t shifted(int32_t rank, int32_t by, int32_t size, Symmetry symmetry) {
  const int32_t position = rank % size;
  switch (symmetry) {
    case Symmetry::none:
      return rank;
    case Symmetry::rotation:
      return rank - position + (position + by) % size;
    case Symmetry::exclusive_or:
      return rank - position + (position ^ by);
  }
  return rank;
}

// Returns true if `other` is the plan `first` of the host's first rank with all peers shifted. The
// steps must have equal numbers of chunks, but not the same chunks.
bool is_image(const Plan& first, const Plan& other, int32_t by, int32_t size, Symmetry symmetry) {
  const std::vector<Step>& a = first.program.steps;
  const std::vector<Step>& b = other.program.steps;
  if (a.size() != b.size() || !std::ranges::equal(first.needs, other.needs) ||
      !std::ranges::equal(first.first_need, other.first_need)) {
    return false;
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].kind != b[i].kind || chunks_of(a[i]) != chunks_of(b[i]) ||
        a[i].peers.size() != b[i].peers.size()) {
      return false;
    }
    for (size_t peer = 0; peer < a[i].peers.size(); ++peer) {
      if (shifted(a[i].peers[peer], by, size, symmetry) != b[i].peers[peer]) return false;
    }
  }
  return true;
}

}  // namespace

int32_t buffer_chunks(Collective collective, const Program& program, int32_t ranks) {
  const int32_t blocks = has_blocks(collective) ? ranks : 1;
  return std::max(1, chunks_per_block(collective, program, ranks)) * blocks;
}

int32_t Schedule::rank_of(int32_t step) const {
  const auto next = std::ranges::upper_bound(first_step, step);
  return static_cast<int32_t>(next - first_step.begin() - 1) * alike;
}

int32_t Schedule::image(int32_t rank, int32_t i) const { return shifted(rank, i, alike, symmetry); }

Symmetry find_symmetry(const Algorithm& algorithm, const Shape& shape, int32_t alike) {
  const int32_t hosts = shape.ranks / alike;
  if (alike < 2 || shape.ranks % alike != 0 || has_root(algorithm.collective)) {
    return Symmetry::none;
  }
  bool rotates = true;
  bool mirrors = (alike & (alike - 1)) == 0;
  for (const int32_t host : {0, std::min(1, hosts - 1), hosts / 2, hosts - 1}) {
    const Plan first = plan_of(algorithm, shape, host * alike);
    for (int32_t i = 1; i < alike && (rotates || mirrors); ++i) {
      const Plan other = plan_of(algorithm, shape, host * alike + i);
      rotates = rotates && is_image(first, other, i, alike, Symmetry::rotation);
      mirrors = mirrors && is_image(first, other, i, alike, Symmetry::exclusive_or);
    }
  }
  return rotates ? Symmetry::rotation : mirrors ? Symmetry::exclusive_or : Symmetry::none;
}

Schedule make_schedule(const Algorithm& algorithm, const Shape& shape,
                       const ScheduleOptions& options) {
  const std::string reason = why_unsupported(algorithm, shape);
  if (!reason.empty()) {
    throw Error(ErrorCode::unsupported, cat(name(algorithm.collective), ' ', algorithm.name,
                                            " does not run on ", shape.ranks, " ranks: ", reason));
  }
  Schedule schedule;
  schedule.ranks = shape.ranks;
  Builder builder(algorithm, shape, options, schedule);
  builder.refuse_if_too_long();
  schedule.symmetry = find_symmetry(algorithm, shape, options.alike);
  if (schedule.symmetry != Symmetry::none) schedule.alike = options.alike;
  builder.build();
  return schedule;
}

}  // namespace tutti
