#include "collectives/simulate/schedule.h"

#include <algorithm>
#include <limits>
#include <tuple>
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

  // By the shorter of two ranks' programs, before all are made: a root may have far more to do.
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
    schedule_.first_step.push_back(0);
    schedule_.first_follower.push_back(0);
    schedule_.first_message.push_back(0);
    for (int32_t rank = 0; rank < shape_.ranks; rank += schedule_.alike) {
      add(plan_of(algorithm_, shape_, rank));
      if (options_.progress && rank % 1024 == 0) options_.progress(1.0 * rank / shape_.ranks);
    }
    match();
  }

 private:
  struct Reception {
    int32_t from;
    int32_t step;
  };

  void add(const Plan& plan) {
    const std::vector<Step>& steps = plan.program.steps;
    const int32_t offset = schedule_.steps();
    if (offset == 0) {
      schedule_.buffer_chunks = buffer_chunks(algorithm_.collective, plan.program, shape_.ranks);
    }
    refuse_if_too_long(static_cast<int64_t>(offset) + static_cast<int64_t>(steps.size()));
    edges_.clear();
    for (size_t i = 0; i < steps.size(); ++i) {
      schedule_.kinds.push_back(steps[i].kind);
      schedule_.chunks.push_back(chunks_of(steps[i]));
      schedule_.waits.push_back(receives(steps[i].kind) ? 1 : 0);
      for (const int32_t need : plan.needs_of(static_cast<int32_t>(i))) {
        edges_.emplace_back(need, static_cast<int32_t>(i));
      }
      add_messages(plan.shape.rank, steps[i]);
    }
    for (const Plan::Queue& queue : plan.queues) {
      for (size_t i = 1; i < queue.steps.size(); ++i) {
        edges_.emplace_back(queue.steps[i - 1], queue.steps[i]);
      }
    }
    add_edges(offset, static_cast<int32_t>(steps.size()));
    schedule_.first_step.push_back(schedule_.steps());
  }

  void refuse_if_too_long(int64_t steps) const {
    if (steps <= options_.most_steps) return;
    throw Error(
        ErrorCode::unsupported,
        cat(name(algorithm_.collective), ' ', algorithm_.name, " on ", shape_.ranks, " ranks has ",
            steps > 2 * options_.most_steps ? cat("some ", steps) : "too many", " steps to walk"),
        {.cause = cat("the limit is ", options_.most_steps, " steps over all ranks"),
         .remedy = "take an algorithm with fewer messages, such as hierarchical or "
                   "recursive_doubling, or fewer ranks"});
  }

  void add_messages(int32_t rank, const Step& step) {
    if (step.kind == StepKind::send) {
      for (const int32_t peer : step.peers) schedule_.messages.push_back({rank, peer});
    } else if (receives(step.kind)) {
      receptions_.push_back({step.peers[0], schedule_.steps() - 1});
    }
    schedule_.first_message.push_back(static_cast<int32_t>(schedule_.messages.size()));
  }

  void add_edges(int32_t offset, int32_t steps) {
    std::ranges::sort(edges_);
    edges_.erase(std::ranges::unique(edges_).begin(), edges_.end());
    size_t next = 0;
    for (int32_t step = 0; step < steps; ++step) {
      for (; next < edges_.size() && edges_[next].first == step; ++next) {
        schedule_.followers.push_back(offset + edges_[next].second);
        ++schedule_.waits[offset + edges_[next].second];
      }
      schedule_.first_follower.push_back(static_cast<int32_t>(schedule_.followers.size()));
    }
  }

  // The k-th message from one rank to another is the k-th that the other receives from it. Where
  // ranks are walked as one, a message to another rank of a host is what rank 0 of that host
  // receives from a rank shifted back as far.
  void match() {
    std::vector<std::tuple<int32_t, int32_t, int32_t>> received;  // by whom, from whom, step
    for (size_t i = 0, walked = 0; i < receptions_.size(); ++i) {
      while (receptions_[i].step >= schedule_.first_step[walked + 1]) ++walked;
      received.emplace_back(static_cast<int32_t>(walked), receptions_[i].from, receptions_[i].step);
    }
    std::ranges::sort(received);
    std::vector<std::tuple<int32_t, int32_t, int32_t>> sent;  // to whom, from whom, message
    for (size_t i = 0; i < schedule_.messages.size(); ++i) {
      const Schedule::Message& message = schedule_.messages[i];
      sent.emplace_back(message.to / schedule_.alike, seen_from_first(message),
                        static_cast<int32_t>(i));
    }
    std::ranges::sort(sent);
    bool matched = sent.size() == received.size();
    for (size_t i = 0; matched && i < sent.size(); ++i) {
      const auto ends = [](const auto& m) { return std::pair(std::get<0>(m), std::get<1>(m)); };
      matched = ends(sent[i]) == ends(received[i]);
      if (i > 0 && ends(sent[i]) != ends(sent[i - 1])) ++schedule_.connections;
      Schedule::Message& message = schedule_.messages[std::get<2>(sent[i])];
      message.step = std::get<2>(received[i]);
      message.connection = schedule_.connections;
    }
    ++schedule_.connections;
    if (matched) return;
    throw Error(ErrorCode::internal,
                cat("messages of ", algorithm_.name, " do not match on ", shape_.ranks, " ranks"));
  }

  // The sender, when the receiver is shifted to be the first of its host.
  int32_t seen_from_first(const Schedule::Message& message) const {
    const int32_t size = schedule_.alike;
    const int32_t shift = message.to % size;
    const int32_t back = schedule_.symmetry == Symmetry::rotation ? (size - shift) % size : shift;
    return schedule_.image(message.from, back);
  }

  const Algorithm& algorithm_;
  const Shape& shape_;
  const ScheduleOptions& options_;
  Schedule& schedule_;
  std::vector<Reception> receptions_;
  std::vector<std::pair<int32_t, int32_t>> edges_;  // of one rank
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

// Whether `other` is what the first rank of the host does, shifted. The order of what several
// independent steps need does not matter, and neither do the chunks' numbers.
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
  const bool blocks = has_input_blocks(collective) || has_output_blocks(collective);
  return std::max(1, chunks_per_block(collective, program, ranks)) * (blocks ? ranks : 1);
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
