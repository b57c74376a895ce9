// One rank's share of a model in training: one stage of the pipeline, the part of the stage's
// parameters, gradients and optimizer state that the ZeRO stage assigns to this rank, and the
// operations of a step.
//
//   micro-batches -> pipeline -> gradients -> summed over the stage's ranks -> scaled, clipped
//                 -> optimizer -> values
//
// Every layout trains the same model. In deterministic mode, with the same number of data-parallel
// ranks and the same micro-batches, the result has the same bits for all ZeRO stages, all
// synchronous pipelines but Chimera, all bucket sizes and all recomputation modes. Without
// pipelining there is one stage.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "training/core/model.h"
#include "training/core/state.h"
#include "training/core/thread_pool.h"
#include "training/engine/gradient_probe.h"
#include "training/engine/step_gradients.h"
#include "training/engine/step_profile.h"
#include "training/engine/tracing_hooks.h"
#include "training/engine/updater.h"
#include "training/optimizers/optimizer.h"
#include "training/parallel/data_parallel.h"
#include "training/parallel/factor_layers.h"
#include "training/parallel/mean_values.h"
#include "training/parallel/mesh.h"
#include "training/parallel/servers/parameter_server.h"
#include "training/parallel/storage.h"
#include "training/parallel/sync_options.h"
#include "training/parallel/synchronizer.h"

namespace tutti::training {

struct PipelineOptions {
  std::string schedule = "1f1b";  // pipeline/schedules.h
  int virtual_stages = 1;         // number of chunks per rank, in schedules that have chunks
  std::vector<int> cut;           // first unit of each chunk; empty: chosen by estimated costs
};

// Creates a user-defined synchronizer (parallel/synchronizer.h) for a rank's share of a model.
// `model` and `storage` outlive it; `options` are the options that a DataParallel of this replica
// would get.
using SynchronizerFactory = std::function<std::unique_ptr<Synchronizer>(
    Model& model, ParameterStorage& storage, const DataParallelOptions& options)>;

struct ReplicaOptions {
  PipelineOptions pipeline;  // options of the mesh's pipeline axis
  // the replica derives one_pass and the options that depend on the ZeRO stage
  StorageOptions storage;
  DataParallelOptions data_parallel;
  SyncOptions sync;       // how ranks synchronize gradients or parameters
  FactorOptions factors;  // the trainer sets `samples` to the number of samples of a step
  SynchronizerFactory synchronizer;  // null: the other options determine it
  RunnerOptions runner;              // the replica sets its data type to that of the storage
  int threads = 1;                   // number of CPU threads of this rank (thread_pool.h)
  uint64_t seed = 1;                 // seed of initial values
  std::optional<double> clip;  // limit on the norm of all gradients together; none: no clipping
  bool stochastic_rounding = false;  // update bf16 values in place, without fp32 masters
  // update bf16 values in place, rounded to nearest, which loses small updates; for experiments
  bool nearest_rounding = false;
  bool without_masters() const { return stochastic_rounding || nearest_rounding; }
  // For f16: the loss is scaled, and steps whose gradients overflow are skipped. None: no scaling.
  std::optional<LossScalerOptions> loss_scaling;
  // Maximum number of micro-batches of a rank in any step; 0: unknown. The gradient of a single
  // micro-batch takes less memory than the sum over several.
  int64_t passes = 0;
  // Factor by which this rank prolongs the computation of gradients by sleeping, for experiments
  // with stragglers.
  double slowdown = 1;
};

struct StepResult : StepLosses {
  double gradient_norm = 0;  // norm of this rank's gradients alone if gradients are not summed
  // Squared norm of the gradient of a micro-batch's mean loss, averaged over the ranks' first
  // micro-batches. 0: unknown, for example because the model is sharded over ranks.
  double micro_batch_square = 0;
  double micro_batch_samples = 0;  // harmonic mean of the numbers of samples of these micro-batches
  double loss_scale = 1;
  int signs = 0;         // number of ranks whose StepBatches::sign returned true
  bool skipped = false;  // true after an overflow: nothing was updated
  // For models with experts. `expert_load`: for each layer, how many tokens of the step chose each
  // expert. `dropped`: number of these choices that were dropped.
  std::vector<std::vector<int64_t>> expert_load;
  int64_t dropped = 0;
  std::string overflow;  // if skipped: the parameter and rank of the first overflow, for messages
  // Set if the results of several steps are exchanged at once: the time at which this rank
  // completed its part of the step, or of the last earlier step in which it had a part.
  std::optional<std::chrono::steady_clock::time_point> ended;
};

struct Evaluation {
  double loss = 0;
  double correct = 0;
  int64_t targets = 0;
  bool of_tokens = false;  // true if the targets are tokens, so that exp(loss) is the perplexity
};

// Memory in use on this rank, in bytes, by kind.
struct MemoryReport {
  StorageBytes storage;
  int64_t optimizer = 0;
  int64_t activations = 0;  // high-water mark, including temporaries
  // message buffers: activations and gradients between stages, keys and values of ring attention
  int64_t boundaries = 0;
  // messages and error feedback of compressed gradient sums
  int64_t compression = 0;
  int64_t copies = 0;  // copies of values and states that are being saved
  int64_t files = 0;   // bytes in offload files; the other kinds are in memory
  int64_t pages = 0;   // maximum number of bytes of the offload files that are in memory at once
};

// Throws Error(invalid_argument) if the pipeline schedule is incompatible with the other options or
// with this placement of the model.
void check_schedule(const ReplicaOptions& options, const pipeline::Placement& placement);
// Throws Error(invalid_argument) if values that differ between ranks (averaging/) are incompatible
// with the other options or with workers of several ranks. `sums`: true if the ranks of a worker
// sum the gradients of some parameters. `shares`: true if two stages share a parameter.
void check_averages(const ReplicaOptions& options, bool sums, bool shares, int ranks_of_a_worker);
bool sums_over_others(const Model& model, const pipeline::Placement& placement);
// Throws Error(invalid_argument) if parameter servers are incompatible with the options or with
// `ranks` ranks. `cut`: true if the model is sharded over ranks.
void check_servers(const ReplicaOptions& options, int ranks, bool cut);
void check_updates(const ReplicaOptions& options, const Model& model, const Optimizer& optimizer);
// Throws Error(invalid_argument) if the options are incompatible with a model that has experts.
void check_experts(Model& model, const ReplicaOptions& options);
void check_compression(const ReplicaOptions& options, const pipeline::Placement& placement);
void check_scale(const CommunicationHook& hook, const ReplicaOptions& options);
// Throws Error(invalid_argument) if the options are incompatible with gradients that are sent as
// factors. `compressed`: true if some gradients are compressed.
void check_factors(const ReplicaOptions& options, Model& model,
                   const pipeline::Placement& placement, bool compressed);
void check_rounding(const ReplicaOptions& options);

// Returns true if ranks do not wait for each other in each step, so that they exchange the results
// of several steps after the last one. With loss scaling, ranks that average values exchange
// results in each step.
bool reports_late(const ReplicaOptions& options);

// Returns the error for a step in which `what` is not finite.
Error diverged(int64_t step, const std::string& what, double learning_rate);

// Returns `options`. If they have parameter servers, changes the storage options so that the owner
// of a shard's masters can serve the shard.
ReplicaOptions with_shards(ReplicaOptions options);

// Returns true if a rank of ZeRO stage 2 or 3 keeps only its shards of the sum over micro-batches,
// so that each micro-batch's gradients are reduced over ranks separately. Returns false if unused
// parameters are allowed, because ranks would then reduce buckets in different orders, and in
// deterministic mode, in which the sums must have the same bits as in the other stages.
bool shards_sums(const ReplicaOptions& options);

// Throws Error(invalid_argument) if the model's parameters were sharded for another place or mesh.
void check_cuts(Model& model, const MeshPlace& place);

// Creates the communication hook for the replica's layout.
using HookFactory = std::function<std::unique_ptr<CommunicationHook>(const Layout&)>;

// One rank's share of a model in training. Each rank has one object; all calls are collective, in
// the same order on all ranks.
class Replica {
 public:
  // Draws the initial values. `model` must outlive the replica.
  Replica(Mesh mesh, Model& model, std::unique_ptr<Optimizer> optimizer,
          const ReplicaOptions& options, const HookFactory& hook = nullptr);

  // Runs step number `step`, counted from 1. If a value is NaN or infinite, throws
  // Error(invalid_argument) on every rank, naming step, rank and layer; if losses are scaled, skips
  // the step instead.
  StepResult step(const StepBatches& batches, int64_t step, double learning_rate);
  // Returns the maximum of `value` over all ranks. `step`: number of the last step, for error
  // messages.
  int32_t largest_on_any_rank(int32_t value, int64_t step);
  // Runs `steps`, the first of which is step number `first`, each with its learning rate. Schedules
  // without flushes update weights while micro-batches of later steps are in flight, until the end
  // of the last step. With servers, or with values that differ between ranks, losses are exchanged
  // after the last step. All other configurations run the steps one after the other.
  std::vector<StepResult> run(std::span<const StepBatches> steps, int64_t first,
                              std::span<const double> learning_rates);
  // Returns the mean loss over all ranks' micro-batches; `passes` as in StepBatches. If ranks have
  // different parameter values, computes the loss with their mean or with the synchronizer's shared
  // values.
  Evaluation evaluate(std::span<const MicroBatch> own, int64_t passes);

  // Returns the kinds of named pieces that this rank owns, for checkpoints: "model" and the
  // optimizer's states.
  std::vector<std::string> kinds() const;
  // Returns the piece's elements of a kind, 1 x count, in fp32 (values without masters: in the
  // model's type). To change them, call finish_values(), write them, and then call publish(), which
  // sends them to the other ranks.
  Tensor values_of(const OwnedPiece& piece, size_t kind) const;
  const std::vector<OwnedPiece>& owned() const { return storage_.owned(); }
  // Returns true if the ranks of a stage own different parts, false if each owns the whole stage.
  bool sharded() const { return options_.storage.stage > 0; }
  // Returns true if this rank must save its pieces: it is the only rank that has them, or the first
  // of those that do. Pieces marked as copies are not saved.
  bool saves() const {
    const MeshPlace& place = mesh_.place();
    return sharded() || (place.first_along(kBatchAxes.without(place.experts)) &&
                         stage() == placement_.holders.front());
  }
  // Returns true for the first rank of its stage.
  bool leads_stage() const { return first_of_model() && group_rank_ == 0; }
  void finish_values();
  void publish();
  // buffers() returns the running statistics of this rank's units. share_buffers() makes them equal
  // in group(): to those of its first rank if ranks sum gradients, otherwise (each rank has its own
  // parameter values) to the mean. It must be called before the statistics are saved or used.
  std::vector<NamedBuffer> buffers();
  void share_buffers();
  // Collective. Passes everything that a checkpoint contains to the visitor. If the visitor changes
  // values, call publish() afterwards, which sends them to the other ranks.
  void visit_state(StateVisitor& visitor);
  const ParameterStorage& storage() const { return storage_; }
  const ParameterSpec& spec(int parameter) const {
    return model_.parameters().specs()[static_cast<size_t>(parameter)];
  }
  // Returns the communicator of the ranks that have the same parameters.
  Communicator& group() { return group_; }
  int group_size() const { return group_.size(); }
  int group_rank() const { return group_rank_; }
  // Returns true for the first tensor-parallel rank, which reports the losses; the other
  // tensor-parallel ranks have copies.
  bool first_of_model() const { return mesh_.place().first_along({Axis::tensor}); }
  // Records events in `trace` from now on. The trace must outlive the replica.
  void record(Trace& trace);
  // Measures the parts of steps with `profiler` from now on. The profiler must outlive the replica.
  void profile(StepProfiler& profiler);
  const Updater& updater() const { return updater_; }
  // Returns true if run() takes steps through parameter servers.
  bool has_servers() const { return servers_ != nullptr; }
  std::optional<int> recorded_ranks(int64_t step) { return synchronizer_->recorded_ranks(step); }
  Staleness staleness() const { return has_servers() ? servers_->staleness() : Staleness(); }
  const StepGradients& gradients() const { return gradients_; }

  MemoryReport memory() const;
  PipelineReport report_pipeline() { return gradients_.report(); }
  // Returns the time that this rank has waited for other ranks since construction.
  std::chrono::nanoseconds waited() const {
    return synchronizer_->waited() + gradients_.waited() + mesh_.unit_traffic().waited + met_;
  }
  // Returns the bytes that this rank has sent along each axis since construction. Reductions over
  // the data axis together with other axes count as traffic of the data axis.
  std::array<double, kAxes> bytes_by_axis() const {
    std::array<double, kAxes> bytes = mesh_.unit_traffic().bytes;
    bytes[static_cast<size_t>(Axis::data)] += synchronizer_->bytes_sent();
    bytes[static_cast<size_t>(Axis::pipeline)] += static_cast<double>(gradients_.bytes_sent());
    return bytes;
  }
  double bytes_sent() const {
    const std::array<double, kAxes> bytes = bytes_by_axis();
    return std::accumulate(bytes.begin(), bytes.end(), 0.0);
  }
  const pipeline::Placement& placement() const { return placement_; }
  // Returns the traffic of the weights of this rank's stage whose gradients are sent as factors.
  const std::vector<FactorTraffic>& factors() const { return factors_; }
  const pipeline::WeightVersions& weight_versions() const { return versions_; }
  Mesh& mesh() { return mesh_; }
  Communicator& world() { return mesh_.world(); }

 private:
  // A failure in a step on one rank. All ranks report the non-finite output of the first unit that
  // has one, or else the lowest rank's non-finite gradient.
  struct StepFailure {
    enum Kind : int32_t { none, loss, gradient };
    int32_t kind = none;
    int32_t index = 0;  // index of the unit, or of the parameter
  };

  // Returns true if results are exchanged after several steps. Models with experts exchange results
  // after each step, because overflows and the experts' loads depend on the samples of all ranks.
  bool is_late() const { return reports_late(options_) && model_.expert_load() == nullptr; }
  bool pipelined() const { return mesh_.size(Axis::pipeline) > 1; }
  int stage() const { return mesh_.place(Axis::pipeline); }
  void wrap_hooks(UnitHooks& hooks);
  template <typename Work>
  auto ending_all(const Work& work);
  template <typename Work>
  auto with_places(int64_t step, const Work& work);
  void abort_all(const std::string& reason);
  StepResult take_step(const StepBatches& batches, int64_t step, double learning_rate);
  void begin_gradients(const std::vector<int64_t>& passes);
  void join_tied_gradients();
  void visit_own_values(StateVisitor& visitor);
  class LateSteps;
  class ServedSteps;
  std::vector<StepResult> run_separately(std::span<const StepBatches> steps, int64_t first,
                                         std::span<const double> learning_rates);
  std::vector<StepResult> run_with_servers(std::span<const StepBatches> steps, int64_t first,
                                           std::span<const double> learning_rates);
  void be_slow(std::chrono::steady_clock::time_point began) const;
  std::vector<StepResult> run_unflushed(std::span<const StepBatches> steps, int64_t first,
                                        std::span<const double> learning_rates);
  ExactSum unflushed_update(double learning_rate);
  void weigh_own_gradients(const StepCounts& own, const StepCounts& all);
  std::optional<int> first_infinite_parameter() const;
  StepFailure trouble() const;
  std::string describe(const std::vector<StepFailure>& troubles) const;
  std::vector<StepFailure> gather(const StepFailure& own);
  double update(double learning_rate);
  std::array<double, 3> micro_batch_square(const StepBatches& batches, const StepCounts& counts,
                                           double loss_scale) const;

  Mesh mesh_;
  Model& model_;
  ReplicaOptions options_;
  ThreadPool threads_;
  pipeline::Plans plans_;
  pipeline::Placement placement_;
  // ranks with the same units, which sum gradients and hold the shards of values and states
  Communicator group_;
  int group_rank_ = 0;
  std::vector<FactorTraffic> factors_;
  ParameterStorage storage_;
  // The three parts of a step: exchange of gradients and values, computation of gradients, update.
  std::unique_ptr<Synchronizer> synchronizer_;
  ParameterServer* servers_ = nullptr;  // synchronizer_ if it has servers, else null
  GradientProbe probe_;                 // forwards the hooks' calls to the synchronizer
  std::optional<int> overweight_;       // parameter whose weighted gradient overflowed
  StepGradients gradients_;
  Updater updater_;
  pipeline::WeightVersions versions_;
  // mean of the ranks' values that was saved, kept until the next step
  std::optional<MeanValues> mean_;
  std::chrono::nanoseconds met_{0};  // time spent in exchanging results with other ranks
  Trace* trace_ = nullptr;
  StepProfiler* profiler_ = nullptr;
  // Hooks around the synchronizer's hooks. Each object forwards to the previous one; hooks_ is the
  // outermost.
  std::optional<TracingHooks> tracing_;
  std::optional<ProfilingHooks> profiling_;
  UnitHooks* hooks_ = &probe_;
};

}  // namespace tutti::training
