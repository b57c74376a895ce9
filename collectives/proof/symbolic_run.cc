#include "collectives/proof/symbolic_run.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "collectives/proof/form.h"

namespace tutti {

SymbolicRun::Rank::Rank(const Plan& plan, bool in_place) : heard(plan.program.steps.size()) {
  const Program& program = plan.program;
  const int32_t scratch = program.input_chunks + program.output_chunks;
  base = {0, program.input_chunks, scratch};
  if (in_place) {
    for (const Space space : {Space::input, Space::output}) {
      base[static_cast<size_t>(space)] =
          static_cast<int32_t>(location(plan.collective, program, plan.shape, space, 0));
    }
  }
  cells.resize(static_cast<size_t>(scratch) + program.scratch_chunks);
}

SymbolicRun::SymbolicRun(std::span<const Plan> plans, bool in_place, Arithmetic arithmetic,
                         Expressions& expressions)
    : plans_(plans),
      expressions_(expressions),
      walk_(plans),
      connections_(plans.size() * plans.size()) {
  for (const Plan& plan : plans) {
    Rank& self = ranks_.emplace_back(plan, in_place);
    if (!has_space(plan.collective, plan.shape, Space::input)) continue;
    for (int32_t chunk = 0; chunk < plan.program.input_chunks; ++chunk) {
      const Id leaf = expressions.leaf(plan.shape.rank, chunk);
      self.cells[self.index(Space::input, chunk)].value =
          arithmetic == Arithmetic::scaled ? expressions.unscaled(leaf) : leaf;
    }
  }
}

const SymbolicRun::Cell& SymbolicRun::result(int32_t rank, int32_t chunk) const {
  return ranks_[rank].cells[ranks_[rank].index(Space::output, chunk)];
}

std::vector<bool> SymbolicRun::known(int32_t rank) const {
  return knowledge(rank, static_cast<int32_t>(plans_[rank].program.steps.size()));
}

// ---- progress

void SymbolicRun::to_the_end() {
  walk_.run([this](int32_t rank, int32_t number) {
    if (!can_run(rank, number)) return Attempt::waits;
    execute(rank, number);
    return Attempt::finished;
  });
  refuse_if_stuck();
}

// Returns true if the step can run: its connection holds a message, or has room for one. Local
// dependencies are already satisfied.
bool SymbolicRun::can_run(int32_t rank, int32_t number) {
  const Step& step = plans_[rank].program.steps[number];
  if (step.kind == StepKind::send) {
    return std::ranges::none_of(step.peers,
                                [&](int32_t peer) { return connection(rank, peer).has_value(); });
  }
  return step.peers.empty() || connection(step.peers[0], rank).has_value();
}

int32_t SymbolicRun::needed_first(int32_t rank, int32_t number) const {
  for (const int32_t needed : plans_[rank].needs_of(number)) {
    if (!walk_.of(rank).finished(0, needed)) return needed;
  }
  return -1;
}

std::string SymbolicRun::waits_for(int32_t rank, int32_t number) {
  const Step& step = plans_[rank].program.steps[number];
  const int32_t first = needed_first(rank, number);
  if (first >= 0) return cat("step ", first);
  if (step.kind != StepKind::send) return cat("a message from rank ", step.peers[0]);
  std::string who;
  for (const int32_t peer : step.peers) {
    if (connection(rank, peer)) who += cat(who.empty() ? "" : " and ", peer);
  }
  return cat("rank ", who, " to receive the previous message");
}

// Throws Refusal if a rank has unfinished steps. The first of these steps is next in all its
// queues, so it waits for another step or for a peer.
void SymbolicRun::refuse_if_stuck() {
  constexpr int kShown = 8;
  std::string all;
  int stuck = 0;
  for (const Plan& plan : plans_) {
    const int32_t rank = plan.shape.rank;
    const QueueWalk& walk = walk_.of(rank);
    if (walk.ended() || ++stuck > kShown) continue;
    int32_t number = 0;
    while (walk.finished(0, number)) ++number;
    all += cat(all.empty() ? "" : "; ", place(plan.program, rank, number), " waits for ",
               waits_for(rank, number));
  }
  if (stuck == 0) return;
  if (stuck > kShown) all += cat("; and ", stuck - kShown, " more ranks");
  throw Refusal{cat("no progress: ", all)};
}

// ---- steps

void SymbolicRun::execute(int32_t rank, int32_t number) {
  const Step& step = plans_[rank].program.steps[number];
  switch (step.kind) {
    case StepKind::send:
      return execute_send(rank, number);
    case StepKind::recv:
    case StepKind::recv_reduce:
      return execute_recv(rank, number);
    case StepKind::reduce:
      return write(
          rank, number, step.dst,
          combine(rank, number, read(rank, number, step.src), read(rank, number, step.src2)));
    case StepKind::copy:
      return write(rank, number, step.dst, read(rank, number, step.src));
  }
}

void SymbolicRun::execute_send(int32_t rank, int32_t number) {
  const Step& step = plans_[rank].program.steps[number];
  Message message{.values = read(rank, number, step.src), .known = {}};
  if (step.wire == Wire::element) {
    for (Id& value : message.values) value = expressions_.rounded(value);
  }
  if (step.src.empty()) message.known = knowledge(rank, number);
  for (const int32_t peer : step.peers) {
    connection(rank, peer) = message;
    walk_.wake(peer);
  }
}

void SymbolicRun::execute_recv(int32_t rank, int32_t number) {
  const Step& step = plans_[rank].program.steps[number];
  std::optional<Message>& arrived = connection(step.peers[0], rank);
  std::vector<Id> values = std::move(arrived->values);
  ranks_[rank].heard[number] = std::move(arrived->known);
  arrived.reset();
  walk_.wake(step.peers[0]);
  if (step.kind == StepKind::recv_reduce) {
    const std::vector<Id> own = read(rank, number, step.src);
    values = step.received_on_left ? combine(rank, number, values, own)
                                   : combine(rank, number, own, values);
  }
  write(rank, number, step.dst, values);
}

// ---- values

std::vector<SymbolicRun::Id> SymbolicRun::read(int32_t rank, int32_t number,
                                               const RangeList& ranges) {
  const Rank& self = ranks_[rank];
  const bool scales = plans_[rank].program.steps[number].scales;
  std::vector<Id> values;
  for_each_chunk(ranges, [&](Space space, int32_t chunk) {
    Id value = self.cells[self.index(space, chunk)].value;
    if (value == Expressions::kNothing) {
      refuse(rank, number,
             cat("read before write: ", to_string({space, chunk, 1}), " is not written yet"));
    }
    if (scales && space == Space::input) value = scaled(rank, number, value);
    if (expressions_.is_unscaled(value)) {
      refuse(rank, number, cat("uses ", to_string({space, chunk, 1}), ", which is not scaled yet"));
    }
    values.push_back(value);
  });
  return values;
}

SymbolicRun::Id SymbolicRun::scaled(int32_t rank, int32_t number, Id value) const {
  if (!expressions_.is_unscaled(value)) {
    refuse(rank, number, "scales data that must not be scaled, or that is scaled already");
  }
  return expressions_.scaled(value);
}

void SymbolicRun::write(int32_t rank, int32_t number, const RangeList& ranges,
                        const std::vector<Id>& values) {
  Rank& self = ranks_[rank];
  const bool divides = plans_[rank].program.steps[number].divides;
  size_t i = 0;
  for_each_chunk(ranges, [&](Space space, int32_t chunk) {
    Id value = values[i++];
    if (divides) {
      if (expressions_.is_mean(value))
        refuse(rank, number, "divides a value that is divided already");
      value = expressions_.mean(value);
    }
    if (space == Space::output) value = expressions_.rounded(value);
    self.cells[self.index(space, chunk)] = {.value = value, .writer = number};
  });
}

std::vector<SymbolicRun::Id> SymbolicRun::combine(int32_t rank, int32_t number,
                                                  const std::vector<Id>& left,
                                                  const std::vector<Id>& right) {
  std::vector<Id> values;
  for (size_t i = 0; i < left.size(); ++i) {
    const int32_t a = expressions_.chunk_of(left[i]);
    const int32_t b = expressions_.chunk_of(right[i]);
    if (a != b) {
      refuse(rank, number, cat("wrong chunk: combines input chunk ", a, " with input chunk ", b));
    }
    if (expressions_.is_mean(left[i]) || expressions_.is_mean(right[i])) {
      refuse(rank, number, "combines a value that is divided already");
    }
    if (expressions_.overlap(left[i], right[i])) {
      refuse(rank, number,
             cat("double count: input of rank ",
                 rank_ranges(expressions_.in_both(left[i], right[i])), " is on both sides"));
    }
    values.push_back(expressions_.combine(left[i], right[i]));
  }
  return values;
}

std::vector<bool> SymbolicRun::knowledge(int32_t rank, int32_t end) const {
  std::vector<bool> known(plans_.size(), false);
  known[rank] = true;
  for (int32_t step = 0; step < end; ++step) {
    const std::vector<bool>& heard = ranks_[rank].heard[step];
    for (size_t other = 0; other < heard.size(); ++other) {
      if (heard[other]) known[other] = true;
    }
  }
  return known;
}

void SymbolicRun::refuse(int32_t rank, int32_t number, const std::string& problem) const {
  throw Refusal{cat(place(plans_[rank].program, rank, number), ": ", problem)};
}

}  // namespace tutti
