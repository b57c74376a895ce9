#include "training/simulate/sync.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace tutti::training {

namespace {

constexpr int32_t kNobody = -1;

size_t index(int64_t i) { return static_cast<size_t>(i); }

// Tracks the progress of workers during a simulation.
class Progression {
 public:
  // Creates the tracker. `most`: the simulation ends after this many steps of all workers together.
  Progression(const SyncSchedule& made, int64_t most)
      : most_(most),
        worker_of_(index(made.schedule.steps()), kNobody),
        planned_(made.ends.size()),
        done_(made.ends.size(), 0),
        since_(made.ends.size(), 0) {
    for (size_t worker = 0; worker < made.ends.size(); ++worker) {
      planned_[worker] = std::ssize(made.ends[worker]);
      for (const int32_t step : made.ends[worker]) {
        worker_of_[index(step)] = static_cast<int32_t>(worker);
      }
    }
  }

  // Records the end of a step. Returns true if the simulation must stop: either it is complete, or
  // the step's worker has no more planned steps.
  bool end(int32_t step, double us) {
    const int32_t worker = worker_of_[index(step)];
    if (worker == kNobody) return false;
    ++all_;
    since_[index(worker)] = us;
    return ++done_[index(worker)] == planned_[index(worker)] || is_complete();
  }

  bool is_complete() const { return all_ == most_; }
  int64_t all() const { return all_; }
  const std::vector<int64_t>& done() const { return done_; }
  // Returns the time at which the worker's last step ended.
  double since(size_t worker) const { return since_[worker]; }

 private:
  int64_t most_;
  int64_t all_ = 0;
  std::vector<int32_t> worker_of_;  // by step of the schedule: its worker
  std::vector<int64_t> planned_;
  std::vector<int64_t> done_;
  std::vector<double> since_;
};

// Estimates each worker's number of steps: the number that it would complete if messages took no
// time, plus a margin.
std::vector<int64_t> shares_of(int64_t all, const SyncWork& work) {
  constexpr double kLeast = 1e-9;
  const int workers = work.roles().workers();
  double speed = 0;
  const auto speed_of = [&](int worker) {
    return 1 / std::max(kLeast, work.step_us[index(worker)]);
  };
  for (int worker = 0; worker < workers; ++worker) speed += speed_of(worker);
  std::vector<int64_t> shares;
  for (int worker = 0; worker < workers; ++worker) {
    const double share = static_cast<double>(all) * speed_of(worker) / speed;
    shares.push_back(std::min(all, static_cast<int64_t>(1.1 * share) + 2));
  }
  return shares;
}

// Increases the workers' numbers of planned steps, because a worker had too few. Extrapolates from
// the progress of all workers.
void extend(std::vector<int64_t>& shares, int64_t all, const Progression& progression) {
  const double factor = 1.1 * static_cast<double>(all) / static_cast<double>(progression.all());
  for (size_t worker = 0; worker < shares.size(); ++worker) {
    const double expected = factor * static_cast<double>(progression.done()[worker]);
    const int64_t wanted = static_cast<int64_t>(std::ceil(expected)) + 1;
    shares[worker] = std::clamp(wanted, shares[worker], all);
  }
}

SimulatedSync play_async(const SyncWork& work, const std::vector<Place>& places, Network& network,
                         SimulationOptions options, int64_t most_steps) {
  const int64_t all = work.updates * work.roles().workers();
  std::vector<int64_t> shares = shares_of(all, work);
  while (true) {
    const SyncSchedule made = make_sync_schedule(work, shares, places, most_steps);
    Progression progression(made, all);
    options.stops_after = [&](int32_t step, double us) { return progression.end(step, us); };
    SimulatedSync result{.network = simulate(made.schedule, network, options),
                         .steps = progression.done(),
                         .waiting = {}};
    const double time = result.network.time_us;
    if (!progression.is_complete() && std::isfinite(time)) {
      extend(shares, all, progression);
      continue;
    }
    for (size_t worker = 0; worker < shares.size(); ++worker) {
      const double step_us = work.step_us[worker];
      const double begun = std::min(step_us, time - progression.since(worker));
      const double computes = static_cast<double>(result.steps[worker]) * step_us + begun;
      result.waiting.push_back(time > 0 ? 1 - computes / time : 0);
    }
    return result;
  }
}

}  // namespace

SimulatedSync simulate_sync(const SyncWork& work, const std::vector<Place>& places,
                            Network& network, const SimulationOptions& options,
                            int64_t most_steps) {
  if (work.way.kind == SyncKind::async) {
    return play_async(work, places, network, options, most_steps);
  }
  const std::vector<int64_t> steps(index(work.roles().workers()), work.updates);
  const SyncSchedule made = make_sync_schedule(work, steps, places, most_steps);
  SimulatedSync result{
      .network = simulate(made.schedule, network, options), .steps = steps, .waiting = {}};
  const double time = result.network.time_us;
  for (size_t worker = 0; worker < steps.size(); ++worker) {
    const double computes = static_cast<double>(work.updates) * work.step_us[worker];
    result.waiting.push_back(time > 0 ? 1 - computes / time : 0);
  }
  return result;
}

}  // namespace tutti::training
