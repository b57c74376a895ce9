// Steps through parameter servers: between two meetings of all ranks workers compute, servers
// update, and nobody waits for others than these.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "training/engine/replica.h"
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
        steps_(steps),
        first_(first),
        rates_(rates),
        counts_(replica.gradients_.count(steps)),
        losses_(steps.size()),
        worker_squares_(steps.size()),
        norms_(steps.size()) {
    if (servers_.serves()) reducer_.emplace(servers_.servers(), true);
  }

  std::vector<StepResult> run();

 private:
  static size_t at(int64_t step) { return static_cast<size_t>(step); }
  bool is_async() const { return replica_.options_.sync.kind == SyncKind::async; }
  double compute(int64_t step, int part);
  void update(const ShardUpdate& update);
  double clip_own(int64_t step);
  Error not_finite(int64_t step, const std::string& what) const;
  std::vector<StepResult> results();

  Replica& replica_;
  ParameterServer& servers_;
  std::span<const StepBatches> steps_;
  int64_t first_;
  std::span<const double> rates_;
  std::vector<StepCounts> counts_;  // of all workers
  std::vector<StepGradients::LossSums> losses_;
  std::vector<double> worker_squares_;  // async: of this rank's parts
  std::vector<double> norms_;           // else of the clocks' sums, on servers
  std::optional<RankReducer> reducer_;
};

std::vector<StepResult> Replica::ServedSteps::run() {
  const bool adds = replica_.updater_.optimizer().adds_gradients() &&
                    replica_.storage_.options().dtype == DType::f32;
  servers_.run({.first = first_,
                .rates = rates_,
                .compute = [&](int64_t step, int part) { return compute(step, part); },
                .update = [&](const ShardUpdate& shard) { update(shard); },
                .own_writes = adds});
  return results();
}

double Replica::ServedSteps::compute(int64_t step, int part) {
  const StepBatches& batches = steps_[at(step)];
  const bool is_own = part == replica_.world().rank();
  const StepBatches taken{.own = is_own ? batches.own : batches.of_part(part),
                          .passes = batches.passes};
  StepGradients& gradients = replica_.gradients_;
  replica_.begin_gradients(gradients.passes(gradients.plan(taken.passes)));
  const auto began = std::chrono::steady_clock::now();
  gradients.run(taken,
                is_async() ? gradients.own_counts(taken).scales(1) : counts_[at(step)].scales(1));
  replica_.be_slow(began);
  gradients.add_losses(losses_[at(step)]);
  if (const Trouble trouble = replica_.trouble(); trouble.kind != Trouble::none) {
    std::vector<Trouble> troubles(static_cast<size_t>(replica_.world().size()));
    troubles[static_cast<size_t>(replica_.world().rank())] = trouble;
    throw not_finite(step, replica_.describe(troubles));
  }
  return is_async() ? clip_own(step) : 1;
}

// Each worker's gradients are an update, with a norm of their own.
double Replica::ServedSteps::clip_own(int64_t step) {
  ExactSum squares;
  const ParameterStorage& storage = replica_.storage_;
  for (int b = 0; b < static_cast<int>(storage.layout().buckets.size()); ++b) {
    add_squares(storage.gradients(b), squares);
  }
  worker_squares_[at(step)] += squares.value();
  const std::optional<double>& clip = replica_.options_.clip;
  return clip ? clip_factor(std::sqrt(squares.value()), *clip) : 1;
}

// By the thread that serves.
void Replica::ServedSteps::update(const ShardUpdate& update) {
  const double rate = rates_[at(update.step)] * update.rate_factor;
  if (is_async()) {
    return replica_.updater_.update_elements(update.pieces, rate, update.factor);
  }
  const double norm = replica_.updater_.update(update.pieces, rate, *reducer_);
  if (!std::isfinite(norm)) throw not_finite(update.step, "the gradients' sum over workers");
  norms_[at(update.step)] = norm;
}

Error Replica::ServedSteps::not_finite(int64_t step, const std::string& what) const {
  return {ErrorCode::invalid_argument,
          cat("step ", first_ + step, ": ", what, " is not finite"),
          {.cause = cat("the training diverged, at a learning rate of ", rates_[at(step)]),
           .remedy = "try a smaller learning rate, --clip or a longer warm-up"}};
}

// All ranks learn what became of the steps.
std::vector<StepResult> Replica::ServedSteps::results() {
  const bool leads = servers_.roles().first_server() == replica_.world().rank();
  std::vector<double> more(2, 0);
  for (const StepBatches& step : steps_) more[0] += step.sign && step.sign() ? 1 : 0;
  more[1] = leads ? static_cast<double>(replica_.updater_.updates()) : 0;
  for (size_t step = 0; step < steps_.size(); ++step) {
    more.push_back(leads && !is_async() ? norms_[step] : worker_squares_[step]);
  }
  const std::vector<StepLosses> losses = replica_.gradients_.share(counts_, losses_, more);
  replica_.updater_.set_updates(static_cast<int64_t>(more[1]));
  std::vector<StepResult> results;
  for (size_t step = 0; step < steps_.size(); ++step) {
    StepResult& result = results.emplace_back(StepResult{losses[step]});
    result.signs = static_cast<int>(more[0]);
    const double told = more[2 + step];
    result.gradient_norm = is_async() ? std::sqrt(told / servers_.roles().workers()) : told;
  }
  return results;
}

std::vector<StepResult> Replica::run_with_servers(std::span<const StepBatches> steps, int64_t first,
                                                  std::span<const double> learning_rates) {
  return ServedSteps(*this, steps, first, learning_rates).run();
}

}  // namespace tutti::training
