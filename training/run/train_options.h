// The options of a run, and what follows from them.
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
  // The run: steps of `batch` samples over all data-parallel ranks, in micro-batches.
  uint64_t samples = 0;
  uint64_t batch = 32;
  uint64_t micro_batch = 8;
  uint64_t seed = 1;
  int workers = 1;
  std::vector<double> data_weights;
  int64_t labels_per_client = 0;  // FeedOptions
  bool document_mask = false;     // as the data sets have it: the run's configuration tells it

  Json optimizer = {{"name", "adamw"}};  // and what it has (optimizers/registry.h), or less
  LearningRateSchedule schedule;         // its peak is the learning rate; total_steps is filled in

  ReplicaOptions replica;    // its passes follow from the batch
  bool measure_cut = false;  // of the pipeline: by timing the model's units first
  Compression compression = Compression::none;
  int compression_rank = 4;            // of PowerSGD
  double compression_fraction = 0.01;  // of gradients that top-k sends
  uint64_t compression_warmup = 0;     // steps before it whose gradients are sent whole
  std::string compression_only = "*";  // of parameters with such names (hooks/selection.h)

  // Deterministic mode: how many parts what tensor ranks share is computed in (core/slices.h).
  // None: it is computed as a whole.
  std::optional<int64_t> cut_slices;

  // Steps between flushes, with a schedule that is not flushed at each step; between meetings of
  // all ranks, where they do not wait for each other (SyncOptions). There is one before validation
  // and checkpoints as well, and after 1024 steps. 0: then only.
  uint64_t flush_every = 16;

  uint64_t validate_every = 0;  // steps; 0: at the end only
  uint64_t validation_samples = 65536;

  std::string checkpoint;         // a directory; empty: none
  uint64_t checkpoint_every = 0;  // steps; 0: at the end only
  int keep = 2;
  // Training goes on while a checkpoint is written, from a copy in memory (MemoryReport::copies).
  bool async_checkpoint = false;
  // The step with the lowest loss on what is held out is saved when it is found, and stays.
  bool keep_best = false;
  // A directory belongs to one run (checkpoint/run_directory.h). A resumed run has the settings
  // that it was saved with, but for those named here (configuration.h), as far as they are the
  // run's and not its layout's.
  bool resume = false;
  std::optional<int64_t> resume_step;  // none: the newest
  bool resume_or_new = false;          // a new run where the directory has no step
  std::vector<std::string> allow_changed;
  bool overwrite = false;  // the run that is in the directory goes when this one has its first step
  // These ranks as the directory's writer, after others; empty: a start of its own
  // (checkpoint/fence.h).
  WriterHistory writers;
  std::string initial;    // a safetensors file with parameters to start from
  std::string trace;      // a file for Chrome's trace format
  bool digest = false;    // hash the parameters at the end: TrainResult::digests
  bool profile = false;   // this rank measures where its steps' time goes: TrainResult::profile
  std::string straggler;  // stragglers.h
  // Asked at the end of each step, when its gradients are there: not 0 once this rank is to stop (a
  // signal's number). Then all ranks stop after that step, and save it. On all ranks, or on none.
  // With `copies`: Departure.
  std::function<int()> stop_requested;
  // With these the ranks keep the state in memory (survival/), each time that so many steps were
  // done; and a run that goes on from such a state begins with it.
  std::shared_ptr<MemoryCopies> copies;
  uint64_t copy_every = 1;
  std::shared_ptr<KeptState> kept;
  // All settings of the run, from which the options above follow: part of its configuration, as
  // checkpoints keep it.
  Json told = Json::object();
};

// The last step of the run of steps that begins with `step` and has no flush in between.
uint64_t next_flush(const TrainOptions& options, uint64_t step, uint64_t steps);

// Null where gradients are summed as they are.
std::unique_ptr<CommunicationHook> make_hook(const TrainOptions& options, Model& model,
                                             const Layout& layout);
// Throws Error(invalid_argument) where ranks with data of their own would sum gradients.
void check_clients(const TrainOptions& options);
// With what a replica must know of the steps that it will take.
ReplicaOptions replica_options(ReplicaOptions options, const Feed& feed);

}  // namespace tutti::training
