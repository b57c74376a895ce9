// The training loop: data, steps, progress, validation, checkpoints and a trace.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "training/data/data_set.h"
#include "training/engine/replica.h"
#include "training/run/run_reports.h"
#include "training/run/train_options.h"

namespace tutti::training {

// Ends the steps of a run that survives deaths, because some ranks, but not all, were asked to stop
// at least a second ago, or because ranks left at this step of the run that is replayed. These
// ranks leave, and the others continue without them. Thrown on all ranks after the same step, after
// a copy of the state is stored in memory.
class Departure : public Error {
 public:
  Departure(const std::string& what, int signal)
      : Error(ErrorCode::aborted, what), signal_(signal) {}
  // Returns the signal that asked this rank to leave; 0: this rank stays.
  int signal() const { return signal_; }

 private:
  int signal_;
};

struct StepReport {
  uint64_t step = 0;  // the step, counted from 1
  uint64_t steps = 0;
  StepResult result;
  double learning_rate = 0;
  // Samples per second over all ranks: `samples_per_second` since training started in this process,
  // `step_samples_per_second` in this step or, without a flush per step, since the last flush.
  double samples_per_second = 0;
  double step_samples_per_second = 0;
  // CPU time of this rank's threads per step, averaged over the steps since the last flush
  double processor_seconds = 0;
  double flops_per_second = 0;  // floating-point operations of the model per second, over all ranks
  double waiting_share = 0;     // fraction of this rank's time spent waiting for communication
  // bytes that this rank sent per step, averaged over the steps since the last flush
  double bytes_sent = 0;
  std::array<double, kAxes> bytes_by_axis = {};
  std::vector<double> epochs;  // number of epochs of each data set
  // Gradient noise scale in samples, smoothed over the steps so far (optimizers/noise_scale.h). NaN
  // for steps of one micro-batch, in pipelines, and while the noise exceeds the gradient.
  double noise_scale = std::numeric_limits<double>::quiet_NaN();
  std::optional<Evaluation> validation;
  MemoryReport memory;
  // Time since training started in this process, without validation and checkpoints.
  std::chrono::nanoseconds elapsed{0};
};

struct TrainResult {
  Evaluation validation;  // set after the last step; otherwise empty
  double samples_per_second = 0;
  double waiting_share = 0;
  std::vector<RankReport> ranks;  // reports of all ranks, indexed by rank
  std::string digest;  // with servers: digest of the model's values (checkpoint/checksum.h)
  std::vector<std::string> digests;  // if requested: digests of each rank's parameters
  MemoryReport memory;
  // Proportional set size of this rank's process in bytes, including libraries (process_memory.h).
  int64_t process_bytes = 0;
  PipelineReport pipeline;
  std::optional<StepProfile> profile;  // set with TrainOptions::profile
  // traffic of the weights of this rank's stage (see Replica::factors())
  std::vector<FactorTraffic> factors;
  uint64_t resumed_at = 0;        // step from which training continued; 0: a new run
  uint64_t step = 0;              // the last completed step
  std::vector<double> epochs;     // number of epochs of each data set, over the whole run
  int checkpoints = 0;            // number of checkpoints saved in this process
  double checkpoint_seconds = 0;  // seconds for which checkpoints blocked training on this rank
  std::string run;                // ID of the run; empty without a checkpoint directory
  int stopped_by = 0;             // signal that stopped the run (stop_requested()); 0: not stopped
};

// Runs training on one rank, a step at a time. Collective: all ranks make the same calls with the
// same data and options. Losses are bitwise equal on all ranks.
class Trainer {
 public:
  // Initializes the model's parameters, or loads the resumed step. `model` and `data` must outlive
  // the trainer. Throws Error(mismatch) on all ranks if their data, models or options differ, and
  // what Replica, RunDirectory, check_resumed() and checkpoints throw.
  Trainer(const Mesh& mesh, Model& model, const std::vector<const DataSet*>& data,
          const TrainOptions& options);
  // If the run was not finished, writes this rank's own trace, if it has one.
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Runs the next step and returns its report. Returns nothing after the last step, or if a rank
  // was asked to stop; throws Departure if only some ranks leave. If the schedule does not flush
  // after each step, one call runs all steps up to the next flush, and further calls report these
  // steps.
  std::optional<StepReport> next();
  // Evaluates the model on the held-out data.
  Evaluation validate();
  // Saves the last step that next() has reported, unless it is saved already. Throws
  // Error(invalid_argument) without a directory, and between flushes if the schedule does not flush
  // after each step.
  void save();
  // Ends the run: saves the last computed step if there is a checkpoint directory, writes the trace
  // if TrainOptions::trace is set, and validates if all steps of the run are done.
  TrainResult finish();

  uint64_t steps() const;  // Returns the number of steps of the run.
  // Returns the number of steps that next() has reported, including steps of earlier processes.
  uint64_t step() const;
  int saves() const;  // Returns the number of checkpoints saved in this process.
  Replica& replica();

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

// Runs a whole training; calls `on_step` after each step.
TrainResult train(const Mesh& mesh, Model& model, const std::vector<const DataSet*>& data,
                  const TrainOptions& options,
                  const std::function<void(const StepReport&)>& on_step);

}  // namespace tutti::training
