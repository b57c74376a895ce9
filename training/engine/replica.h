// One rank's share of a model in training: a stage of its pipeline; the stage's parameters,
// gradients and optimizer state, as far as the ZeRO stage gives them to this rank; and the
// operations of a step.
//
//   micro-batches -> pipeline -> gradients -> summed over the stage's ranks -> scaled, clipped
//                 -> optimizer -> values
//
// Every layout trains the same model: with the same number of data-parallel ranks and the same
// micro-batches, in deterministic mode, all stages of ZeRO, all synchronous pipelines but Chimera,
// all bucket sizes and all recomputation modes give the same bits. Without pipelining there is one
// stage.
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
  int virtual_stages = 1;         // chunks a rank, where the schedule has them
  std::vector<int> cut;           // first unit of each chunk; empty: by estimated costs
};

// Creates a user-defined synchronizer (parallel/synchronizer.h) for a rank's share of a model.
// Model and storage outlive it; the options contain what the replica knows of the parameters.
using SynchronizerFactory = std::function<std::unique_ptr<Synchronizer>(
    Model& model, ParameterStorage& storage, const DataParallelOptions& options)>;

struct ReplicaOptions {
  PipelineOptions pipeline;  // over the mesh's pipeline axis
  StorageOptions storage;    // one_pass and stage-dependent options are derived
  DataParallelOptions data_parallel;
  SyncOptions sync;                  // how ranks synchronize
  FactorOptions factors;             // the trainer sets `samples` to those of a step
  SynchronizerFactory synchronizer;  // none: chosen by the other options
  RunnerOptions runner;              // its type is that of the storage
  int threads = 1;                   // CPU threads of this rank (thread_pool.h)
  uint64_t seed = 1;                 // of initial values
  std::optional<double> clip;        // limit on the norm of all gradients together
  bool stochastic_rounding = false;  // update bf16 values in place, without masters
  bool nearest_rounding = false;     // likewise, but small updates are lost; for experiments
  bool without_masters() const { return stochastic_rounding || nearest_rounding; }
  // For f16: the loss is scaled, and steps whose gradients overflow are skipped. None: no scaling.
  std::optional<LossScalerOptions> loss_scaling;
  // Maximum number of micro-batches of a rank in any step; 0: unknown. Gradients of a single
  // micro-batch take less memory than sums of several.
  int64_t passes = 0;
  // Makes this rank's gradients take this many times as long, by sleeping. For experiments with
  // stragglers.
  double slowdown = 1;
};

struct StepResult : StepLosses {
  double gradient_norm = 0;  // this rank's own if gradients are not summed
  // The squared norm of one micro-batch's gradient of its mean loss, averaged over the ranks' first
  // micro-batches. 0: unknown, as for models that are cut over ranks.
  double micro_batch_square = 0;
  double loss_scale = 1;
  int signs = 0;         // number of ranks whose StepBatches::sign returned true
  bool skipped = false;  // an overflow: nothing was updated
  // Models with experts: number of tokens of the step that chose each expert, by layer, and the
  // number of these choices that were dropped.
  std::vector<std::vector<int64_t>> expert_load;
  int64_t dropped = 0;
  std::string overflow;  // if skipped: the parameter and rank of the first overflow
  // Set where the results of several steps are exchanged at once: the time at which this rank
  // completed its part of the step, or of the last earlier step in which it had a part.
  std::optional<std::chrono::steady_clock::time_point> ended;
};

struct Evaluation {
  double loss = 0;
  double correct = 0;
  int64_t targets = 0;
  bool of_tokens = false;  // the targets are tokens: exp(loss) is the perplexity
};

// Bytes on this rank, by kind.
struct MemoryReport {
  StorageBytes storage;
  int64_t optimizer = 0;
  int64_t activations = 0;  // high-water mark, temporaries included
  // Message buffers: activations and gradients between stages, ring attention's keys and values.
  int64_t boundaries = 0;
  // For compressed gradient sums: the messages, and error feedback.
  int64_t compression = 0;
  int64_t copies = 0;  // that are being saved
  int64_t files = 0;   // bytes that are offloaded; the other kinds are in memory
  int64_t pages = 0;   // maximum number of bytes of these files in memory at once
};

// Throws Error(invalid_argument) if the pipeline schedule is incompatible with the other options,
// or with this placement of the model. Every rank throws the same.
void check_schedule(const ReplicaOptions& options, const pipeline::Placement& placement);
// Likewise for averages of values among workers of several ranks each; for the loss scale with a
// communication hook; and for rounding. `sums`: the ranks of a worker sum the gradients of some
// parameters.
void check_averages(const ReplicaOptions& options, bool sums, int ranks_of_a_worker);
bool sums_over_others(const Model& model, const pipeline::Placement& placement);
// Likewise for parameter servers on this number of ranks.
void check_servers(const ReplicaOptions& options, int ranks, bool cut);
void check_updates(const ReplicaOptions& options, const Model& model, const Optimizer& optimizer);
// Likewise for models with experts.
void check_experts(Model& model, const ReplicaOptions& options);
void check_compression(const ReplicaOptions& options, const pipeline::Placement& placement);
void check_scale(const CommunicationHook& hook, const ReplicaOptions& options);
// Likewise for gradients that are sent as factors. `compressed`: some gradients are compressed.
void check_factors(const ReplicaOptions& options, Model& model,
                   const pipeline::Placement& placement, bool compressed);
void check_rounding(const ReplicaOptions& options);

// True if ranks do not wait for each other in each step, so that the results of several steps are
// exchanged after the last one.
bool tells_late(const ReplicaOptions& options);

// The error of a step in which `what` is not finite.
Error diverged(int64_t step, const std::string& what, double learning_rate);

// Adds the storage options that servers need: the owner of a shard's masters serves the shard.
ReplicaOptions with_shards(ReplicaOptions options);

// True if a rank of ZeRO stage 2 or 3 keeps shards of the sum over micro-batches, and reduces each
// micro-batch's gradients over ranks by itself. In deterministic mode the sums have the same bits
// as in the other stages.
bool shards_sums(const ReplicaOptions& options);

// Throws Error(invalid_argument) if the model's parameters were cut for another place or mesh.
void check_cuts(Model& model, const MeshPlace& place);

// Creates the communication hook once the replica has its layout.
using HookFactory = std::function<std::unique_ptr<CommunicationHook>(const Layout&)>;

// One object per rank; all calls are collective, in the same order on all ranks.
class Replica {
 public:
  // Draws the initial values. `model` must outlive it.
  Replica(Mesh mesh, Model& model, std::unique_ptr<Optimizer> optimizer,
          const ReplicaOptions& options, const HookFactory& hook = nullptr);

  // Runs one step; steps are counted from 1. At the first NaN or infinity it throws
  // Error(invalid_argument) on every rank, naming step, rank and layer; if losses are scaled, the
  // step is skipped instead.
  StepResult step(const StepBatches& batches, int64_t step, double learning_rate);
  // Returns the maximum of all ranks' values, after `step`.
  int32_t largest_on_any_rank(int32_t value, int64_t step);
  // Runs the steps from `first` on, each with its learning rate. Schedules without flushes update
  // weights while micro-batches of later steps are in flight, until the end of the last step. With
  // servers, or with values that differ between ranks, losses are exchanged after the last step.
  // Otherwise the steps run one after the other.
  std::vector<StepResult> run(std::span<const StepBatches> steps, int64_t first,
                              std::span<const double> learning_rates);
  // Returns the mean loss over all ranks' micro-batches; `passes` as in StepBatches. If ranks have
  // different values, it is the loss of their mean.
  Evaluation evaluate(std::span<const MicroBatch> own, int64_t passes);

  // Kinds of named pieces that this rank owns, for checkpoints: "model" and the optimizer's states.
  std::vector<std::string> kinds() const;
  // Elements of a kind, 1 x count in fp32 (a model without masters: in its own type). They may be
  // written between finish_values() and publish(), which distributes them.
  Tensor values_of(const OwnedPiece& piece, size_t kind) const;
  const std::vector<OwnedPiece>& owned() const { return storage_.owned(); }
  // True if the ranks of a stage own different parts; otherwise each owns all of it.
  bool sharded() const { return options_.storage.stage > 0; }
  // True if this rank alone has its pieces, or is the first of the ranks that have them (pieces
  // marked as copies excepted).
  bool saves() const {
    const MeshPlace& place = mesh_.place();
    return sharded() || (place.first_along(kBatchAxes.without(place.experts)) &&
                         stage() == placement_.holders.front());
  }
  // True for the first rank of its stage.
  bool leads_stage() const { return first_of_model() && group_rank_ == 0; }
  void finish_values();
  void publish();
  // Running statistics of this rank's units. share_buffers(), to be called before they are saved or
  // used, replaces them by those of the stage's first rank, or by the mean if ranks have different
  // values.
  std::vector<NamedBuffer> buffers();
  void share_buffers();
  // Shows all state of checkpoints to the visitor; changes by the visitor reach the other ranks
  // with publish(). Collective.
  void visit_state(StateVisitor& visitor);
  const ParameterStorage& storage() const { return storage_; }
  const ParameterSpec& spec(int parameter) const {
    return model_.parameters().specs()[static_cast<size_t>(parameter)];
  }
  Communicator& group() { return group_; }  // the ranks that have the same parameters
  int group_size() const { return group_.size(); }
  int group_rank() const { return group_rank_; }
  // True for the first tensor rank, which reports the losses; the other tensor ranks have copies.
  bool first_of_model() const { return mesh_.place().first_along({Axis::tensor}); }
  // Records from now on. The trace must outlive the replica.
  void record(Trace& trace);
  // Measures the parts of steps from now on. The profiler must outlive the replica.
  void profile(StepProfiler& profiler);
  const Updater& updater() const { return updater_; }
  // True if run() takes steps through parameter servers.
  bool has_servers() const { return servers_ != nullptr; }
  std::optional<int> recorded_ranks(int64_t step) { return synchronizer_->recorded_ranks(step); }
  Staleness staleness() const { return has_servers() ? servers_->staleness() : Staleness(); }
  const StepGradients& gradients() const { return gradients_; }

  MemoryReport memory() const;
  PipelineReport report_pipeline() { return gradients_.report(); }
  // Time that this rank waited for others, and bytes that it sent, since construction.
  std::chrono::nanoseconds waited() const {
    return synchronizer_->waited() + gradients_.waited() + mesh_.said().waited + met_;
  }
  // By axis; reductions over the data axis and other axes together count as the data axis's.
  std::array<double, kAxes> bytes_by_axis() const {
    std::array<double, kAxes> bytes = mesh_.said().bytes;
    bytes[static_cast<size_t>(Axis::data)] += synchronizer_->bytes_sent();
    bytes[static_cast<size_t>(Axis::pipeline)] += static_cast<double>(gradients_.bytes_sent());
    return bytes;
  }
  double bytes_sent() const {
    const std::array<double, kAxes> bytes = bytes_by_axis();
    return std::accumulate(bytes.begin(), bytes.end(), 0.0);
  }
  const pipeline::Placement& placement() const { return placement_; }
  // The weights of this rank's stage whose gradients are sent as factors.
  const std::vector<FactorTraffic>& factors() const { return factors_; }
  const pipeline::WeightVersions& weight_versions() const { return versions_; }
  Mesh& mesh() { return mesh_; }
  Communicator& world() { return mesh_.world(); }

 private:
  // A failure of one rank; all ranks learn the first rank's.
  struct Trouble {
    enum Kind : int32_t { none, loss, gradient };
    int32_t kind = none;
    int32_t index = 0;  // the unit, or the parameter
  };

  // Overflows and experts' loads need the samples of all ranks in each step.
  bool is_late() const { return tells_late(options_) && model_.expert_load() == nullptr; }
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
  std::vector<StepResult> run_apart(std::span<const StepBatches> steps, int64_t first,
                                    std::span<const double> learning_rates);
  std::vector<StepResult> run_with_servers(std::span<const StepBatches> steps, int64_t first,
                                           std::span<const double> learning_rates);
  void be_slow(std::chrono::steady_clock::time_point began) const;
  std::vector<StepResult> run_unflushed(std::span<const StepBatches> steps, int64_t first,
                                        std::span<const double> learning_rates);
  ExactSum unflushed_update(double learning_rate);
  void weigh_own_gradients(const StepCounts& own, const StepCounts& all);
  std::optional<int> first_infinite_parameter() const;
  Trouble trouble() const;
  std::string describe(const std::vector<Trouble>& troubles) const;
  std::vector<Trouble> gather(const Trouble& own);
  double update(double learning_rate);
  std::array<double, 2> micro_batch_square(const StepBatches& batches, const StepCounts& counts,
                                           double loss_scale) const;

  Mesh mesh_;
  Model& model_;
  ReplicaOptions options_;
  ThreadPool threads_;
  pipeline::Plans plans_;
  pipeline::Placement placement_;
  Communicator group_;  // ranks with the same units, which sum gradients and hold shards
  int group_rank_ = 0;
  std::vector<FactorTraffic> factors_;
  ParameterStorage storage_;
  // The three parts of a step: exchange of gradients and values; gradients; update.
  std::unique_ptr<Synchronizer> synchronizer_;
  ParameterServer* servers_ = nullptr;  // the synchronizer, if it is a server
  GradientProbe probe_;                 // wraps the synchronizer
  std::optional<int> overweight_;       // parameter whose weighted gradient overflowed
  StepGradients gradients_;
  Updater updater_;
  pipeline::WeightVersions versions_;
  std::optional<MeanValues> mean_;   // the mean that was saved, kept until the next step
  std::chrono::nanoseconds met_{0};  // time in which ranks exchanged results
  Trace* trace_ = nullptr;
  StepProfiler* profiler_ = nullptr;
  // Each wraps the previous hooks; hooks_ is the outermost.
  std::optional<TracingHooks> tracing_;
  std::optional<ProfilingHooks> profiling_;
  UnitHooks* hooks_ = &probe_;
};

}  // namespace tutti::training
