// The options of a run, and values derived from them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "training/checkpoint/writer.h"
#include "training/engine/replica.h"
#include "training/optimizers/registry.h"
#include "training/optimizers/schedule.h"
#include "training/run/feed.h"
#include "training/survival/memory_copies.h"

namespace tutti::training {

enum class Compression { none, bf16, f16, powersgd, topk, mx8, mx4, int8, sign, onebit_adam };

struct TrainOptions {
  // The run: steps of `batch` samples over all data-parallel ranks, divided into micro-batches.
  uint64_t samples = 0;
  uint64_t batch = 32;
  uint64_t micro_batch = 8;
  uint64_t seed = 1;
  int workers = 1;
  std::vector<double> data_weights;
  int64_t labels_per_client = 0;  // see FeedOptions
  // true if the data sets have document masks; recorded in the configuration
  bool document_mask = false;

  // the optimizer's name, and some or all of its settings (optimizers/registry.h)
  Json optimizer = {{"name", "adamw"}};
  // `peak` is the learning rate; `total_steps` is derived from the number of samples
  LearningRateSchedule schedule;

  ReplicaOptions replica;    // `passes` is derived from the batch
  bool measure_cut = false;  // true: cut the pipeline by measured unit times
  Compression compression = Compression::none;
  int compression_rank = 4;            // rank of PowerSGD's factors
  double compression_fraction = 0.01;  // fraction of the gradients' elements that top-k sends
  uint64_t compression_warmup = 0;     // number of initial steps with uncompressed gradients
  std::string compression_only = "*";  // pattern of parameter names (hooks/selection.h)

  // Deterministic mode: number of slices of the computations that tensor-parallel ranks share
  // (core/slices.h). Unset: the computations are not sliced.
  std::optional<int64_t> cut_slices;

  // Number of steps between pipeline flushes, for schedules without a flush per step, or between
  // meetings of all ranks, if ranks do not wait for each other (SyncOptions). Validation,
  // checkpoints and every 1024th step flush as well; with 0, nothing else flushes.
  uint64_t flush_every = 16;

  uint64_t validate_every = 0;  // in steps; 0: only at the end
  uint64_t validation_samples = 65536;

  std::string checkpoint;         // directory of the run's checkpoints; empty: saves none
  uint64_t checkpoint_every = 0;  // in steps; 0: only at the end
  int keep = 2;
  // True: write checkpoints in the background, from a copy in memory (MemoryReport::copies).
  bool async_checkpoint = false;
  // True: save the step with the lowest validation loss as soon as it is found, and keep it.
  bool keep_best = false;
  // True: continue the run in the directory. A directory belongs to one run
  // (checkpoint/run_directory.h). The run must have the settings with which it was saved, except
  // layout settings and those in `allow_changed` (configuration.h).
  bool resume = false;
  std::optional<int64_t> resume_step;  // step to resume; unset: the newest step
  bool resume_or_new = false;          // true: start a new run if the directory has no step
  std::vector<std::string> allow_changed;
  // true: replace the run in the directory once this run saves its first step
  bool overwrite = false;
  // History of the directory's writers, ending with these ranks; empty: a new start
  // (checkpoint/fence.h).
  WriterHistory writers;
  std::string initial;    // path of a safetensors file with initial parameters
  std::string trace;      // path of an output file in Chrome's trace format
  bool digest = false;    // true: hash the parameters at the end (TrainResult::digests)
  bool profile = false;   // true: profile this rank's steps (TrainResult::profile)
  std::string straggler;  // slowdowns of ranks (stragglers.h)
  // Returns the number of a signal once this rank is to stop, otherwise 0. Called in each step,
  // after the gradients are computed, and between steps. If it returns a signal on any rank, all
  // ranks stop after the same step, which finish() saves if there is a checkpoint directory. Must
  // be set on all ranks or on none. With `copies`, a request to only some ranks leads to a
  // Departure.
  std::function<int()> stop_requested;
  // Copies of the ranks' state in memory (survival/), updated every `copy_every` steps. `kept` is
  // the state from which a continued run starts.
  std::shared_ptr<MemoryCopies> copies;
  uint64_t copy_every = 1;
  std::shared_ptr<KeptState> kept;
  // The settings as given, from which the options above are derived; part of the run's
  // configuration, which checkpoints contain.
  Json configuration = Json::object();
};

// Returns the last step before the next flush. `step`: the first step after the previous flush;
// `steps`: number of steps of the run.
uint64_t next_flush(const TrainOptions& options, uint64_t step, uint64_t steps);

// Creates the hook that compresses gradients. Returns null if gradients are summed uncompressed.
std::unique_ptr<CommunicationHook> make_hook(const TrainOptions& options, Model& model,
                                             const Layout& layout);
// Throws Error(invalid_argument) if ranks that have different data would sum gradients.
void check_clients(const TrainOptions& options);
// Returns the options with the values that follow from the feed: the number of passes and the
// number of samples per step.
ReplicaOptions replica_options(ReplicaOptions options, const Feed& feed);

}  // namespace tutti::training
