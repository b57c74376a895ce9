// Steps through parameter servers: workers compute, servers update, and ranks wait only for
// servers.

#include <cmath>
#include <optional>
#include <vector>

#include "training/engine/late_steps.h"
#include "training/optimizers/exact_sum.h"
#include "training/optimizers/gradient_norm.h"
#include "training/parallel/rank_reducer.h"

namespace tutti::training {

class Replica::ServedSteps {
 public:
  ServedSteps(Replica& replica, std::span<const StepBatches> steps, int64_t first,
              std::span<const double> rates)
      : replica_(replica),
        servers_(*replica.servers_),
        rates_(rates),
        first_(first),
        late_(replica, steps, first, rates),
        squares_(steps.size()) {
    if (servers_.serves()) reducer_.emplace(servers_.servers(), true);
  }

  std::vector<StepResult> run();

 private:
  bool is_async() const { return replica_.options_.sync.kind == SyncKind::async; }
  bool leads() const { return servers_.roles().first_server() == replica_.world().rank(); }
  std::optional<double> compute(int64_t step, int part);
  double clip_own(int64_t step);
  void update(const ShardUpdate& update);
  std::vector<StepResult> results();

  Replica& replica_;
  ParameterServer& servers_;
  std::span<const double> rates_;
  int64_t first_;
  LateSteps late_;
  std::optional<RankReducer> reducer_;
  // One value per step. With async: sum of squares of the gradients that this worker computed.
  // Otherwise: sum of squares of the gradients summed over all workers, set only on the first
  // server.
  std::vector<double> squares_;
};

std::vector<StepResult> Replica::ServedSteps::run() {
  // If gradients are clipped, only servers have the clipped gradients.
  const bool adds = replica_.updater_.optimizer().adds_gradients() && !replica_.options_.clip &&
                    replica_.storage_.options().dtype == DType::f32;
  servers_.run({.first = first_,
                .rates = rates_,
                .compute = [&](int64_t step, int part) { return compute(step, part); },
                .update = [&](const ShardUpdate& shard) { update(shard); },
                .own_writes = adds});
  return results();
}

std::optional<double> Replica::ServedSteps::compute(int64_t step, int part) {
  const StepBatches& batches = late_.batches(step);
  const bool is_own = part == replica_.world().rank();
  const StepBatches taken{.own = is_own ? batches.own : batches.of_part(part),
                          .passes = batches.passes};
  const StepCounts counts = is_async() ? replica_.gradients_.own_counts(taken) : late_.counts(step);
  late_.compute(step, taken, counts.scales(1));
  late_.check(step);
  if (!is_async()) return 1;
  return counts.targets == 0 ? std::nullopt : std::optional(clip_own(step));
}

// Clips a worker's gradients by their own norm, because each worker's gradients are a separate
// update.
double Replica::ServedSteps::clip_own(int64_t step) {
  ExactSum squares;
  const ParameterStorage& storage = replica_.storage_;
  for (int b = 0; b < static_cast<int>(storage.layout().buckets.size()); ++b) {
    add_squares(storage.gradients(b), squares);
  }
  squares_[static_cast<size_t>(step)] += squares.value();
  const std::optional<double>& clip = replica_.options_.clip;
  return clip ? clip_factor(std::sqrt(squares.value()), *clip) : 1;
}

// Applies an update; called by the serving thread.
void Replica::ServedSteps::update(const ShardUpdate& update) {
  const double rate = late_.rate(update.step) * update.rate_factor;
  Updater& updater = replica_.updater_;
  if (is_async()) return updater.update_elements(update.pieces, rate, update.factor);
  const double norm = updater.update(update.pieces, rate, *reducer_);
  if (!std::isfinite(norm)) {
    throw late_.diverged(update.step, "the gradients' sum over workers");
  }
  if (leads()) squares_[static_cast<size_t>(update.step)] = norm * norm;
}

// Returns the results. Also sends the number of updates to the workers that are not servers.
std::vector<StepResult> Replica::ServedSteps::results() {
  std::vector<double> sums = squares_;
  sums.push_back(leads() ? static_cast<double>(replica_.updater_.updates()) : 0);
  std::vector<StepResult> results = late_.results(sums);
  replica_.updater_.set_updates(static_cast<int64_t>(sums.back()));
  const double parts = is_async() ? servers_.roles().workers() : 1;
  for (size_t step = 0; step < results.size(); ++step) {
    results[step].gradient_norm = std::sqrt(sums[step] / parts);
  }
  return results;
}

std::vector<StepResult> Replica::run_with_servers(std::span<const StepBatches> steps, int64_t first,
                                                  std::span<const double> learning_rates) {
  return ServedSteps(*this, steps, first, learning_rates).run();
}

}  // namespace tutti::training
