#include "training/run/run_saver.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/text.h"
#include "training/core/group.h"
#include "training/run/snapshot.h"

namespace tutti::training {
namespace {

using SavingClock = std::chrono::steady_clock;

// Adds the time from construction to destruction to a sum.
class Stopwatch {
 public:
  explicit Stopwatch(std::chrono::nanoseconds& sum) : sum_(sum) {}
  ~Stopwatch() { sum_ += SavingClock::now() - start_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::chrono::nanoseconds& sum_;
  SavingClock::time_point start_ = SavingClock::now();
};

// Returns the best loss, broadcast from rank 0 as text, so that the bits are equal on all ranks.
double best_loss(Communicator& world, const RunDirectory* directory) {
  char text[64] = "";
  if (directory != nullptr) std::snprintf(text, sizeof text, "%a", directory->best_loss());
  return std::strtod(text_of_first(world, text).c_str(), nullptr);
}

}  // namespace

RunSaver::RunSaver(Replica& replica, Model& model, RunSaverOptions options)
    : replica_(replica),
      model_(model),
      options_(std::move(options)),
      saved_(options_.saved),
      best_loss_(best_loss(replica.world(), options_.directory)) {}

void RunSaver::save(uint64_t step, Json state, bool best) {
  finish();
  const Stopwatch watch(lost_);
  const double loss = best ? state.at(kValidationLoss).get<double>() : best_loss_;
  Snapshot snapshot{.directory = options_.directory,
                    .step = static_cast<int64_t>(step),
                    .configuration = options_.configuration,
                    .state = std::move(state),
                    .keep = options_.keep,
                    .best = best};
  if (options_.in_background) {
    const SnapshotParts parts = parts_of(replica_, model_, std::move(snapshot));
    in_flight_.emplace(parts.request, parts.pieces, group_of(replica_.world()), memory_);
  } else {
    save_snapshot(replica_, model_, std::move(snapshot));
    ++saves_;
  }
  saved_ = step;
  best_loss_ = loss;
}

void RunSaver::poll() {
  if (!in_flight_) return;
  const Stopwatch watch(lost_);
  const auto step = static_cast<int64_t>(saved_);
  if (replica_.largest_on_any_rank(in_flight_->busy() ? 1 : 0, step) == 0) advance();
}

void RunSaver::finish() {
  const Stopwatch watch(lost_);
  while (in_flight_) advance();
}

// Advances the save in flight by one phase, and drops it once it has ended or failed.
void RunSaver::advance() {
  try {
    if (!in_flight_->advance()) return;
    in_flight_.reset();
    ++saves_;
  } catch (...) {
    in_flight_.reset();
    throw;
  }
}

}  // namespace tutti::training
