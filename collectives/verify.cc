#include "collectives/verify.h"

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"
#include "collectives/expression.h"
#include "collectives/form.h"
#include "collectives/plan.h"

namespace tutti {

namespace {

using Id = Expressions::Id;

bool reduces(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce;
}

// The memory of one rank: what each chunk holds and which step wrote it last.
class Memory {
 public:
  Memory(const Plan& plan, bool in_place) : plan_(plan) {
    const Program& program = plan.program;
    const int32_t own = plan.shape.rank * chunks_per_block(plan.collective, program);
    const bool gathers = plan.collective == Collective::all_gather;
    const bool scatters = plan.collective == Collective::reduce_scatter;
    base_[index(Space::input)] = in_place && gathers ? own : 0;
    base_[index(Space::output)] = !in_place ? program.input_chunks : scatters ? own : 0;
    const int32_t buffers = program.input_chunks + program.output_chunks;
    base_[index(Space::scratch)] = buffers;
    cells_.resize(buffers + program.scratch_chunks);
  }

  struct Cell {
    Id value = Expressions::kNothing;
    int32_t writer = -1;  // step
  };
  Cell& at(Space space, int32_t chunk) { return cells_[base_[index(space)] + chunk]; }

 private:
  static size_t index(Space space) { return static_cast<size_t>(space); }
  const Plan& plan_;
  std::array<int32_t, 3> base_ = {};
  std::vector<Cell> cells_;
};

// One run of all ranks. Programs are dataflow: whatever the order in which steps that can run are
// run, the same steps run in the end, on the same values. So one order proves all.
class Run {
 public:
  Run(std::span<const Plan> plans, bool in_place, Expressions& expressions)
      : plans_(plans), expressions_(expressions), connections_(plans.size() * plans.size()) {
    const Collective collective = plans[0].collective;
    for (const Plan& plan : plans) {
      ranks_.emplace_back(plan, in_place);
      if (collective == Collective::broadcast && plan.shape.rank != plan.shape.root) continue;
      for (int32_t chunk = 0; chunk < plan.program.input_chunks; ++chunk) {
        ranks_.back().memory.at(Space::input, chunk).value =
            expressions.leaf(plan.shape.rank, chunk);
      }
    }
  }

  void to_the_end() {
    std::deque<int32_t> awake;
    for (int32_t rank = 0; rank < size(); ++rank) awake.push_back(rank);
    while (!awake.empty()) {
      const int32_t rank = awake.front();
      awake.pop_front();
      ranks_[rank].awake = false;
      run_as_far_as_possible(rank);
      for (const int32_t woken : std::exchange(woken_, {})) {
        if (!std::exchange(ranks_[woken].awake, true)) awake.push_back(woken);
      }
    }
    refuse_if_stuck();
  }

  Memory::Cell result(int32_t rank, int32_t chunk) {
    return ranks_[rank].memory.at(Space::output, chunk);
  }
  // The ranks that this one knows, at the end, to have started.
  std::vector<bool> known(int32_t rank) const {
    return knowledge(rank, static_cast<int32_t>(plans_[rank].program.steps.size()));
  }

 private:
  struct Message {
    std::vector<Id> values;
    std::vector<bool> known;  // tokens only
  };
  struct Rank {
    Rank(const Plan& plan, bool in_place)
        : memory(plan, in_place),
          cursors(plan.queues.size(), 0),
          done(plan.words, 0),
          heard(plan.program.steps.size()) {}
    Memory memory;
    std::vector<size_t> cursors;           // next step of each queue
    std::vector<uint64_t> done;            // bit set over steps
    std::vector<std::vector<bool>> heard;  // by step: what the token it received said
    bool awake = true;
  };

  int32_t size() const { return static_cast<int32_t>(plans_.size()); }
  std::optional<Message>& connection(int32_t from, int32_t to) {
    return connections_[static_cast<size_t>(from) * plans_.size() + to];
  }
  bool is_done(int32_t rank, int32_t step) const {
    return (ranks_[rank].done[step / 64] >> (step % 64) & 1) != 0;
  }
  // A step that must come first, or -1.
  int32_t needed_first(int32_t rank, int32_t step) const {
    const uint64_t* needs = plans_[rank].needs_of(step);
    for (int32_t word = 0; word < plans_[rank].words; ++word) {
      const uint64_t open = needs[word] & ~ranks_[rank].done[word];
      if (open != 0) return word * 64 + std::countr_zero(open);
    }
    return -1;
  }
  bool at_head(int32_t rank, size_t queue, int32_t step) const {
    const Plan::Queue& q = plans_[rank].queues[queue];
    const size_t cursor = ranks_[rank].cursors[queue];
    return cursor < q.steps.size() && q.steps[cursor] == step;
  }

  void run_as_far_as_possible(int32_t rank) {
    for (bool moved = true; std::exchange(moved, false);) {
      for (size_t queue = 0; queue < plans_[rank].queues.size(); ++queue) {
        while (advance(rank, queue)) moved = true;
      }
    }
  }

  bool advance(int32_t rank, size_t queue) {
    const Plan& plan = plans_[rank];
    Rank& self = ranks_[rank];
    if (self.cursors[queue] == plan.queues[queue].steps.size()) return false;
    const int32_t number = plan.queues[queue].steps[self.cursors[queue]];
    if (waits_for(rank, number)) return false;
    execute(rank, number);
    self.done[number / 64] |= uint64_t{1} << (number % 64);
    const std::vector<int32_t>& shared = plan.send_queues[number];
    if (shared.empty()) ++self.cursors[queue];
    for (const int32_t other : shared) ++self.cursors[other];
    return true;
  }

  // What the step waits for, in words; nothing if it can run. Asked of queue heads, and of the
  // first open step of a rank that is stuck.
  std::optional<std::string> waits_for(int32_t rank, int32_t number) {
    const Plan& plan = plans_[rank];
    const Step& step = plan.program.steps[number];
    const int32_t first = needed_first(rank, number);
    if (first >= 0) return cat("step ", first);
    for (const int32_t queue : plan.send_queues[number]) {
      if (!at_head(rank, queue, number)) {
        return cat("an earlier send to rank ", plan.queues[queue].peer);
      }
    }
    if (step.kind == StepKind::send) {
      for (const int32_t peer : step.peers) {
        if (connection(rank, peer)) return cat("rank ", peer, " to take the message before it");
      }
    } else if (!step.peers.empty() && !connection(step.peers[0], rank)) {
      return cat("a message from rank ", step.peers[0]);
    }
    return std::nullopt;
  }

  void execute(int32_t rank, int32_t number) {
    const Step& step = plans_[rank].program.steps[number];
    switch (step.kind) {
      case StepKind::send: {
        Message message{.values = read(rank, number, step.src)};
        if (step.src.empty()) message.known = knowledge(rank, number);
        for (const int32_t peer : step.peers) {
          connection(rank, peer) = message;
          woken_.push_back(peer);
        }
        break;
      }
      case StepKind::recv:
      case StepKind::recv_reduce: {
        std::optional<Message>& arrived = connection(step.peers[0], rank);
        std::vector<Id> values = std::move(arrived->values);
        ranks_[rank].heard[number] = std::move(arrived->known);
        arrived.reset();
        woken_.push_back(step.peers[0]);
        if (step.kind == StepKind::recv_reduce) {
          std::vector<Id> own = read(rank, number, step.src);
          values = step.received_on_left ? combine(rank, number, values, own)
                                         : combine(rank, number, own, values);
        }
        write(rank, number, step.dst, values);
        break;
      }
      case StepKind::reduce:
        write(rank, number, step.dst,
              combine(rank, number, read(rank, number, step.src), read(rank, number, step.src2)));
        break;
      case StepKind::copy:
        write(rank, number, step.dst, read(rank, number, step.src));
        break;
    }
  }

  std::vector<Id> read(int32_t rank, int32_t number, const RangeList& ranges) {
    std::vector<Id> values;
    for_each_chunk(ranges, [&](Space space, int32_t chunk) {
      values.push_back(ranks_[rank].memory.at(space, chunk).value);
      if (values.back() == Expressions::kNothing) {
        refuse(rank, number, cat("read before write: nothing wrote chunk ", chunk, " of it yet"));
      }
    });
    return values;
  }

  void write(int32_t rank, int32_t number, const RangeList& ranges, const std::vector<Id>& values) {
    size_t i = 0;
    for_each_chunk(ranges, [&](Space space, int32_t chunk) {
      ranks_[rank].memory.at(space, chunk) = {.value = values[i++], .writer = number};
    });
  }

  std::vector<Id> combine(int32_t rank, int32_t number, const std::vector<Id>& left,
                          const std::vector<Id>& right) {
    std::vector<Id> values;
    for (size_t i = 0; i < left.size(); ++i) {
      const int32_t a = expressions_.chunk_of(left[i]);
      const int32_t b = expressions_.chunk_of(right[i]);
      if (a != b) {
        refuse(rank, number, cat("wrong chunk: combines input chunk ", a, " with input chunk ", b));
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

  // What the rank surely knows when step `end` starts: only receives above it count.
  std::vector<bool> knowledge(int32_t rank, int32_t end) const {
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

  [[noreturn]] void refuse(int32_t rank, int32_t number, const std::string& problem) const {
    throw Refusal{cat(place(plans_[rank].program, rank, number), ": ", problem)};
  }

  void refuse_if_stuck() {
    constexpr int kShown = 8;
    std::string all;
    int stuck = 0;
    for (int32_t rank = 0; rank < size(); ++rank) {
      const auto steps = static_cast<int32_t>(plans_[rank].program.steps.size());
      int32_t step = 0;
      while (step < steps && is_done(rank, step)) ++step;
      if (step == steps || ++stuck > kShown) continue;
      const std::optional<std::string> what = waits_for(rank, step);
      all += cat(all.empty() ? "" : "; ", place(plans_[rank].program, rank, step), " waits for ",
                 what.value_or("a step before it"));
    }
    if (stuck == 0) return;
    if (stuck > kShown) all += cat("; and ", stuck - kShown, " more ranks");
    throw Refusal{cat("no progress: ", all)};
  }

  std::span<const Plan> plans_;
  Expressions& expressions_;
  std::vector<Rank> ranks_;
  std::vector<std::optional<Message>> connections_;  // [from * p + to]
  std::vector<int32_t> woken_;
};

// The input chunk, and the rank it comes from where the collective does not reduce, that is due in
// an output chunk.
struct Due {
  int32_t chunk;
  int32_t rank;
};

Due due_in(const Plan& plan, int32_t output_chunk) {
  const int32_t block = chunks_per_block(plan.collective, plan.program);
  switch (plan.collective) {
    case Collective::all_gather:
      return {.chunk = output_chunk % block, .rank = output_chunk / block};
    case Collective::reduce_scatter:
      return {.chunk = plan.shape.rank * block + output_chunk, .rank = -1};
    default:
      return {.chunk = output_chunk, .rank = plan.shape.root};
  }
}

// Throws Refusal unless the cell holds what is due in the output chunk.
void check_result(const Plan& plan, int32_t chunk, const Memory::Cell& cell,
                  Expressions& expressions) {
  const int32_t rank = plan.shape.rank;
  const Due due = due_in(plan, chunk);
  // In place, the result may be there without a step.
  const std::string where =
      cat(cell.writer >= 0 ? place(plan.program, rank, cell.writer) : cat("rank ", rank),
          ": output[", chunk, "] ");
  if (cell.value == Expressions::kNothing) {
    throw Refusal{cat(where, "is never written: contributions are missing")};
  }
  if (expressions.chunk_of(cell.value) != due.chunk) {
    throw Refusal{cat(where, "ends up with the wrong chunk: input chunk ",
                      expressions.chunk_of(cell.value), ", not ", due.chunk)};
  }
  if (reduces(plan.collective)) {
    const std::vector<int> missing = expressions.missing(cell.value);
    if (!missing.empty()) {
      throw Refusal{cat(where, "lacks a contribution: rank ", rank_ranges(missing),
                        " is missing in its result")};
    }
  } else if (cell.value != expressions.leaf(due.rank, due.chunk)) {
    throw Refusal{cat(where, "ends up with input of rank ",
                      rank_ranges(expressions.contributors(cell.value)), ", not of rank ",
                      due.rank)};
  }
}

void check_barrier(const Run& run, int32_t ranks) {
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const std::vector<bool> known = run.known(rank);
    for (int32_t other = 0; other < ranks; ++other) {
      if (!known[other]) {
        throw Refusal{cat("rank ", rank, " leaves the barrier without knowing that rank ", other,
                          " has entered: a contribution is missing")};
      }
    }
  }
}

Grade check_run(std::span<const Plan> plans, bool in_place) {
  const Collective collective = plans[0].collective;
  Expressions expressions(static_cast<int32_t>(plans.size()));
  Run run(plans, in_place, expressions);
  run.to_the_end();
  if (collective == Collective::barrier) {
    check_barrier(run, static_cast<int32_t>(plans.size()));
    return Grade::canonical;
  }
  Grade grade = Grade::canonical;
  for (const Plan& plan : plans) {
    const int32_t rank = plan.shape.rank;
    if (collective == Collective::reduce && rank != plan.shape.root) continue;
    for (int32_t chunk = 0; chunk < plan.program.output_chunks; ++chunk) {
      const Memory::Cell cell = run.result(rank, chunk);
      check_result(plan, chunk, cell, expressions);
      if (!reduces(collective)) continue;
      if (cell.value != expressions.canonical(due_in(plan, chunk).chunk)) {
        grade = std::min(grade, Grade::same_bits);
      }
      const bool shared = collective == Collective::all_reduce;
      if (shared && cell.value != run.result(0, chunk).value) grade = Grade::correct;
    }
  }
  return grade;
}

}  // namespace

Verdict verify(Collective collective, std::span<const Program> programs, int32_t root) {
  const auto ranks = static_cast<int32_t>(programs.size());
  if (ranks == 0 || root < 0 || root >= ranks) {
    return {.problem = cat("there is no root ", root, " among ", ranks, " ranks")};
  }
  try {
    check_steps(collective, programs, root);
    std::vector<Plan> plans;
    for (int32_t rank = 0; rank < ranks; ++rank) {
      plans.push_back(
          make_plan(collective, {.ranks = ranks, .rank = rank, .root = root}, programs[rank]));
    }
    check_messages(collective, plans);
    const Grade apart = check_run(plans, false);
    return {.grade = std::min(apart, check_run(plans, true))};
  } catch (const Refusal& refusal) {
    return {.problem = refusal.problem};
  }
}

Verdict verify(const Algorithm& algorithm, int32_t ranks, int32_t root) {
  const std::string reason = algorithm.supports(ranks);
  if (!reason.empty()) return {.problem = reason};
  std::vector<Program> programs;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    programs.push_back(algorithm.emit({.ranks = ranks, .rank = rank, .root = root}));
  }
  return verify(algorithm.collective, programs, root);
}

}  // namespace tutti
