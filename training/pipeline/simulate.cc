#include "training/pipeline/simulate.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "training/pipeline/action_index.h"

namespace tutti::training::pipeline {
namespace {

constexpr int kNothing = -1;

// An entry with its costs and dependences.
struct Task {
  Entry entry;
  double takes = 0;
  int needs = kNothing;  // index of the result for which it waits
  double message = 0;    // message time of that result
  int makes = kNothing;
};

struct Tasks {
  std::vector<std::vector<Task>> ranks;
  size_t results = 0;
};

[[noreturn]] void refuse(std::string_view what, std::string_view cause, std::string_view remedy) {
  throw Error(ErrorCode::invalid_argument, what,
              {.cause = std::string(cause), .remedy = std::string(remedy)});
}

// Expands `given` to `count` chunks or, if `may_lack_last`, to the boundaries between them.
std::vector<double> spread(std::string_view name, const std::vector<double>& given, int count,
                           bool may_lack_last = false) {
  for (const double cost : given) {
    if (std::isfinite(cost) && cost >= 0) continue;
    refuse(cat("a cost of ", cost, " for ", name), "the time was not measured",
           "use finite numbers of at least 0");
  }
  if (given.size() == 1) return std::vector<double>(index(count), given[0]);
  if (given.size() == index(count) || (may_lack_last && given.size() + 1 == index(count))) {
    return given;
  }
  refuse(cat(given.size(), " costs for ", name, " of ", count, " chunks"),
         "the costs belong to another partition of the model",
         "use one number for all chunks, or one for each chunk");
}

// Returns the index of a result: forward results come first, ordered by micro-batch and chunk, then
// backward results.
int result_of(const Schedule& schedule, const Entry& entry) {
  if (entry.kind == Kind::backward_weight) return kNothing;
  const int cell = entry.micro_batch * schedule.chunks + entry.chunk;
  const int cells = schedule.micro_batches * schedule.chunks;
  return entry.kind == Kind::forward ? cell : cells + cell;
}

Tasks tasks_of(const Plan& plan, const Costs& costs) {
  const Schedule& schedule = plan.schedule;
  const EntryCosts known(schedule, costs);
  Tasks tasks;
  tasks.ranks.resize(plan.ranks.size());
  tasks.results = 2 * index(schedule.micro_batches) * index(schedule.chunks);
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    for (const Action& action : plan.ranks[rank].actions) {
      if (action.kind != Action::Kind::compute) continue;
      const Entry& entry = action.entry;
      Task task{.entry = entry, .takes = known.of(entry), .makes = result_of(schedule, entry)};
      if (needs_input(schedule, entry)) {
        const Entry needed = input_of(entry);
        task.needs = result_of(schedule, needed);
        const bool is_here = index(plan.rank_of(needed.micro_batch, needed.chunk)) == rank;
        if (!is_here) task.message = known.message(entry, needed);
      }
      tasks.ranks[rank].push_back(task);
    }
  }
  return tasks;
}

// Throws an error if a rank has not completed. The error reports the first such rank, and the entry
// at which it waits.
void refuse_stuck(const Tasks& tasks, const std::vector<size_t>& done) {
  for (size_t rank = 0; rank < tasks.ranks.size(); ++rank) {
    if (done[rank] == tasks.ranks[rank].size()) continue;
    const Task& stuck = tasks.ranks[rank][done[rank]];
    refuse(cat("rank ", rank, " waits forever at the ", describe(stuck.entry)),
           "the plan was not checked", "call check() first, which reports the problem");
  }
}

// Runs the table once. `clocks`, indexed by rank: initially the time at which the rank may start;
// on return, the time at which it has completed its entries.
std::vector<Span> run(const Tasks& tasks, std::vector<double>& clocks) {
  constexpr double kNotYet = -1;
  std::vector<double> made(tasks.results, kNotYet);
  std::vector<std::vector<Span>> spans(tasks.ranks.size());
  // Advances each rank as far as possible, in turns.
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < tasks.ranks.size(); ++rank) {
      while (spans[rank].size() < tasks.ranks[rank].size()) {
        const Task& task = tasks.ranks[rank][spans[rank].size()];
        double start = clocks[rank];
        if (task.needs != kNothing) {
          if (made[index(task.needs)] == kNotYet) break;
          start = std::max(start, made[index(task.needs)] + task.message);
        }
        clocks[rank] = start + task.takes;
        if (task.makes != kNothing) made[index(task.makes)] = clocks[rank];
        spans[rank].push_back({static_cast<int>(rank), task.entry, start, clocks[rank]});
        moved = true;
      }
    }
  }
  std::vector<size_t> done;
  for (const std::vector<Span>& its : spans) done.push_back(its.size());
  refuse_stuck(tasks, done);
  std::vector<Span> all;
  for (const std::vector<Span>& its : spans) all.insert(all.end(), its.begin(), its.end());
  return all;
}

// Runs the table repeatedly, after a first run that ended at `clocks`, until each rank takes as
// long as in the previous run. Returns the slowest rank's time.
double steady_period(const Tasks& tasks, std::vector<double> clocks) {
  const size_t ranks = clocks.size();
  const double tolerance = 1e-9 * *std::ranges::max_element(clocks);
  const size_t most_runs = 64 + 4 * ranks;
  constexpr int kEnough = 3;  // number of equal runs in succession after which the period is known
  std::vector<double> times(ranks, 0);
  double half_way = 0;
  int equal = 0;
  for (size_t i = 0; i < most_runs && equal < kEnough; ++i) {
    if (i == most_runs / 2) half_way = std::ranges::max(clocks);
    const std::vector<double> before = clocks;
    run(tasks, clocks);
    bool same = true;
    for (size_t rank = 0; rank < ranks; ++rank) {
      const double time = clocks[rank] - before[rank];
      same = same && std::abs(time - times[rank]) <= tolerance;
      times[rank] = time;
    }
    equal = same ? equal + 1 : 0;
  }
  if (equal == kEnough) return std::ranges::max(times);
  // The times alternate from run to run, so the mean of the second half of the runs is returned.
  return (std::ranges::max(clocks) - half_way) / static_cast<double>(most_runs - most_runs / 2);
}

// Returns the idle fraction of `total` time.
double idle(double busy, double total) { return total > 0 ? std::max(0., 1 - busy / total) : 0; }

}  // namespace

EntryCosts::EntryCosts(const Schedule& schedule, const Costs& costs)
    : forward_(spread("forward", costs.forward, schedule.chunks)),
      backward_input_(spread("backward_input", costs.backward_input, schedule.chunks)),
      backward_weight_(spread("backward_weight", costs.backward_weight, schedule.chunks)),
      message_(spread("messages", costs.message, schedule.chunks, true)) {}

double EntryCosts::of(const Entry& entry) const {
  const size_t chunk = index(entry.chunk);
  switch (entry.kind) {
    case Kind::forward:
      return forward_[chunk];
    case Kind::backward:
      return backward_input_[chunk] + backward_weight_[chunk];
    case Kind::backward_input:
      return backward_input_[chunk];
    case Kind::backward_weight:
      return backward_weight_[chunk];
  }
  return 0;
}

double EntryCosts::message(const Entry& entry, const Entry& needed) const {
  return message_[index(std::min(entry.chunk, needed.chunk))];
}

Timeline simulate(const Plan& plan, const Costs& costs) {
  const Tasks tasks = tasks_of(plan, costs);
  std::vector<double> clocks(plan.ranks.size(), 0);
  Timeline timeline;
  timeline.spans = run(tasks, clocks);
  if (timeline.spans.empty()) return timeline;
  double busy = 0;
  for (const std::vector<Task>& its : tasks.ranks) {
    for (const Task& task : its) busy += task.takes;
  }
  const auto ranks = static_cast<double>(plan.ranks.size());
  timeline.makespan =
      std::ranges::max(clocks) - std::ranges::min(timeline.spans, {}, &Span::start).start;
  timeline.bubble = idle(busy, ranks * timeline.makespan);
  timeline.period = steady_period(tasks, clocks);
  timeline.steady_bubble = idle(busy, ranks * timeline.period);
  return timeline;
}

double makespan(const Plan& plan, const Costs& costs, int processors) {
  const Tasks tasks = tasks_of(plan, costs);
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<double> made(tasks.results, kNever);
  std::vector<double> clocks(tasks.ranks.size(), 0);
  std::vector<size_t> next(tasks.ranks.size(), 0);
  std::vector<double> free(index(processors), 0);
  const auto ready = [&](size_t rank) {
    if (next[rank] == tasks.ranks[rank].size()) return kNever;
    const Task& task = tasks.ranks[rank][next[rank]];
    if (task.needs == kNothing) return clocks[rank];
    return std::max(clocks[rank], made[index(task.needs)] + task.message);
  };
  while (true) {
    size_t first = 0;
    for (size_t rank = 1; rank < tasks.ranks.size(); ++rank) {
      if (ready(rank) < ready(first)) first = rank;
    }
    if (ready(first) == kNever) {
      refuse_stuck(tasks, next);
      break;
    }
    double& processor = *std::ranges::min_element(free);
    const double start = std::max(processor, ready(first));
    const Task& task = tasks.ranks[first][next[first]++];
    processor = start + task.takes;
    clocks[first] = processor;
    if (task.makes != kNothing) made[index(task.makes)] = processor;
  }
  return clocks.empty() ? 0 : std::ranges::max(clocks);
}

}  // namespace tutti::training::pipeline
