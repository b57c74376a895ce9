// The loop of a Trainer: runs the steps up to a flush, reports them one by one, and validates,
// saves and stops between flushes.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "training/engine/step_profile.h"
#include "training/optimizers/noise_scale.h"
#include "training/run/configuration.h"
#include "training/run/feed_queue.h"
#include "training/run/run_origin.h"
#include "training/run/run_saver.h"
#include "training/run/trainer.h"

namespace tutti::training {

class Trainer::Loop {
 public:
  Loop(const Mesh& mesh, Model& model, const std::vector<const DataSet*>& data,
       const TrainOptions& options, RunConfiguration configuration);
  // If the run was not finished, writes this rank's trace so far.
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  std::optional<StepReport> next();
  Evaluation validate();
  void save();
  TrainResult finish();

  uint64_t steps() const { return feed_.steps(); }
  uint64_t step() const { return reported_; }
  int saves() const { return saver_ ? saver_->saves() : 0; }
  Replica& replica() { return replica_; }

 private:
  RunSaverOptions saver_options();
  void save_done(const Evaluation* validation = nullptr);
  void save_if_best(const Evaluation& validation);
  Json state() const;
  void go_on_from(const Json& state);
  void tell_of_jump(double last_rate) const;
  void keep_in_memory(uint64_t every);
  struct StepsDone {
    std::vector<StepResult> results;
    uint64_t samples = 0;
  };
  StepsDone run_steps(uint64_t first, uint64_t last);
  StepsDone profile_steps(uint64_t first, uint64_t last);
  void run_to_flush();
  void observe_noise(uint64_t samples);
  bool due(uint64_t every, uint64_t step) const {
    return every != 0 && step % every == 0 && step < feed_.steps();
  }
  int agreed_stop(uint64_t step);
  void leave_as_recorded();
  [[noreturn]] void depart(const std::string& why, int signal);
  MemoryReport memory() const;
  Trace* tracing() { return options_.trace.empty() ? nullptr : &trace_; }

  Model& model_;
  TrainOptions options_;
  RunConfiguration configuration_;
  Communicator world_;
  RunOrigin origin_;
  Feed feed_;
  Trace trace_;
  StepProfiler profiler_;
  Replica replica_;
  bool of_tokens_;
  std::optional<RunSaver> saver_;  // set if there is a directory

  std::optional<FeedQueue> feeds_;
  StepFeed part_;  // the part of another rank that was fetched last
  std::vector<MicroBatch> part_views_;
  uint64_t resumed_at_ = 0;
  uint64_t done_ = 0;             // number of steps computed, up to the last flush
  uint64_t reported_ = 0;         // number of steps reported
  std::optional<uint64_t> kept_;  // the last step whose state was copied to memory
  int stopped_by_ = 0;
  // time at which the first request to stop this rank was seen
  std::optional<std::chrono::steady_clock::time_point> asked_;
  bool finished_ = false;
  std::vector<StepResult> results_;  // results of the stretch that ends with step done_
  StepReport report_;                // report of the last reported step
  std::vector<std::chrono::nanoseconds> elapsed_;  // time at the end of each step of results_
  NoiseScale noise_scale_;
  // samples, and time of waiting for communication, since training started in this process
  uint64_t samples_ = 0;
  std::chrono::nanoseconds waited_{0};
};

}  // namespace tutti::training
