// The loop: from data to a trained model, with progress, validation, checkpoints and a trace.
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

// Some ranks were asked to stop, for a second, and others were not, in a run that survives deaths:
// those leave, with this, and the others go on without them. Thrown on all ranks after the same
// step, whose state they have in memory.
class Departure : public Error {
 public:
  Departure(const std::string& what, int signal)
      : Error(ErrorCode::aborted, what), signal_(signal) {}
  // By which this rank was asked; 0: it is none of those that leave.
  int signal() const { return signal_; }

 private:
  int signal_;
};

struct StepReport {
  uint64_t step = 0;  // from 1
  uint64_t steps = 0;
  StepResult result;
  double learning_rate = 0;
  // Over all ranks, since training began here, and in this step (or since the flush before it).
  double samples_per_second = 0;
  double step_samples_per_second = 0;
  double processor_seconds = 0;  // of this rank's threads in this step
  double flops_per_second = 0;   // of the model, over all ranks
  double waiting_share = 0;      // of this rank's time so far, waiting for communication
  double bytes_sent = 0;         // by this rank in this step
  std::array<double, kAxes> bytes_by_axis = {};
  std::vector<double> epochs;  // how often each data set was gone through
  // In samples, smoothed over the steps so far (optimizers/noise_scale.h). NaN where a step is one
  // micro-batch, in pipelines, and while the noise hides the gradient.
  double noise_scale = std::numeric_limits<double>::quiet_NaN();
  std::optional<Evaluation> validation;
  MemoryReport memory;
  // Since training began here, without validation and checkpoints.
  std::chrono::nanoseconds elapsed{0};
};

struct TrainResult {
  Evaluation validation;  // after the last step; else empty
  double samples_per_second = 0;
  double waiting_share = 0;
  std::vector<RankReport> ranks;     // all of them
  std::string digest;                // with servers: of the model's values (checkpoint/checksum.h)
  std::vector<std::string> digests;  // where asked for: of each rank's parameters
  MemoryReport memory;
  int64_t process_bytes =
      0;  // of this rank's process, with the libraries' memory: process_memory.h
  PipelineReport pipeline;
  std::optional<StepProfile> profile;  // where it was asked for
  std::vector<FactorTraffic> factors;  // weights of this rank's stage: Replica::factors()
  uint64_t resumed_at = 0;             // the step that was loaded; 0: none
  uint64_t step = 0;                   // the last one that was done
  std::vector<double> epochs;          // how often each data set was gone through, in all
  int checkpoints = 0;                 // that were saved here
  double checkpoint_seconds = 0;       // of this rank's time that training stood still for them
  std::string run;                     // its identity; empty without a checkpoint directory
  int stopped_by = 0;                  // what stop_requested() said
};

// One run, on one rank, a step at a time. Collective: all ranks make the same calls with the same
// data and options. Losses are the same on every rank, bit for bit.
class Trainer {
 public:
  // Makes the model's parameters, or loads what is resumed. `model` and `data` outlive it. Throws
  // Error(mismatch) on all ranks when their data, model or options differ, and what Replica,
  // RunDirectory, check_resumed() and checkpoints throw.
  Trainer(const Mesh& mesh, Model& model, const std::vector<const DataSet*>& data,
          const TrainOptions& options);
  // A run that was not finished leaves each rank's own trace, if it has one.
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Does the next step; nothing after the last one, and once the ranks were asked to stop. With a
  // schedule that is not flushed at each step, steps are done in runs up to a flush, and told one
  // by one. When it throws, each rank that has a trace writes its own.
  std::optional<StepReport> next();
  // How well the model does on what is held out.
  Evaluation validate();
  // Saves the last step that next() has told, unless it is saved. Throws Error(invalid_argument)
  // without a directory, and in the middle of a run of steps that is not flushed.
  void save();
  // Ends the run: saves it, if it has a directory, writes the trace and, after the last step,
  // validates.
  TrainResult finish();

  // The steps of the run, and of these the ones that were done, in earlier processes too.
  uint64_t steps() const;
  uint64_t step() const;
  int saves() const;  // checkpoints that were saved since training began here
  Replica& replica();

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

// All of it: `on_step` is called after each step.
TrainResult train(const Mesh& mesh, Model& model, const std::vector<const DataSet*>& data,
                  const TrainOptions& options,
                  const std::function<void(const StepReport&)>& on_step);

}  // namespace tutti::training
