// One rank's share of a model in training: a stage of its pipeline, of that stage parameters,
// gradients and optimizer state by ZeRO stage, and what a step does with them.
//
//   micro-batches -> pipeline -> gradients -> summed over the stage's ranks -> scaled, clipped
//                 -> optimizer -> values
//
// Every layout trains the same model: at the same number of data-parallel ranks and the same
// micro-batches, in deterministic mode, all stages of ZeRO, all synchronous pipelines but Chimera,
// bucket sizes and ways of keeping activations give the same bits. Without a pipeline it is one of
// a single stage.
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
  std::vector<int> cut;           // the first unit of each chunk; empty: by estimated costs
};

// Makes a synchronizer of one's own (parallel/synchronizer.h) for a rank's share of a model. Both
// outlive it; the options say what a replica knows of the parameters.
using SynchronizerFactory = std::function<std::unique_ptr<Synchronizer>(
    Model& model, ParameterStorage& storage, const DataParallelOptions& options)>;

struct ReplicaOptions {
  PipelineOptions pipeline;  // over the mesh's pipeline axis
  StorageOptions storage;    // one_pass and those of a stage follow from the others
  DataParallelOptions data_parallel;
  SyncOptions sync;                  // how ranks keep together
  FactorOptions factors;             // its samples are those of a step, as the trainer sets them
  SynchronizerFactory synchronizer;  // none: what the others say
  RunnerOptions runner;              // its type is the storage's
  int threads = 1;                   // that compute together on this rank (thread_pool.h)
  uint64_t seed = 1;                 // of initial values
  std::optional<double> clip;        // the largest norm of all gradients together
  bool stochastic_rounding = false;  // bf16 values are updated themselves: they have no masters
  // f16: the loss is scaled, and steps whose gradients overflow are left out. Without it gradients
  // are taken as they are.
  std::optional<LossScalerOptions> loss_scaling;
  // The most micro-batches that a rank has in any step; 0: it is not known. The gradients of one
  // take less memory than the sums of several.
  int64_t passes = 0;
  // This rank takes so many times as long for its gradients: it sleeps. For experiments with slow
  // ranks.
  double slowdown = 1;
};

struct StepResult : StepLosses {
  double gradient_norm = 0;  // this rank's own, where the synchronizer leaves gradients as they are
  // The squared norm of one micro-batch's gradient of its mean loss: the mean over the ranks' first
  // ones. 0: unknown, as where models are cut over ranks.
  double micro_batch_square = 0;
  double loss_scale = 1;
  int signs = 0;         // ranks that wanted to tell something (StepBatches::sign)
  bool skipped = false;  // an overflow: nothing was updated
  // Models with experts: how often the step's tokens chose each expert, by layer, and how many of
  // these choices were dropped.
  std::vector<std::vector<int64_t>> expert_load;
  int64_t dropped = 0;
  std::string overflow;  // then: which parameter on which rank was first
  // Set where ranks learn of several steps at once: when this rank had computed its part of the
  // step, or of the last step before in which it had one.
  std::optional<std::chrono::steady_clock::time_point> ended;
};

struct Evaluation {
  double loss = 0;
  double correct = 0;
  int64_t targets = 0;
  bool of_tokens = false;  // a language model's: exp(loss) is its perplexity
};

// Bytes on this rank, by kind.
struct MemoryReport {
  StorageBytes storage;
  int64_t optimizer = 0;
  int64_t activations = 0;  // the most so far, temporaries included
  // Buffers of messages: activations and gradients between stages, keys and values of the ring.
  int64_t boundaries = 0;
  int64_t compression =
      0;               // of sums over ranks: what is sent in place of gradients, and remembered
  int64_t copies = 0;  // of what is being saved meanwhile
  int64_t files = 0;   // offloaded: the other kinds are in memory
  int64_t pages = 0;   // of these files, the most that are in memory at once
};

// Throws Error(invalid_argument) where the pipeline's schedule does not go with the other options,
// or with a model that is placed like this. Every rank finds the same.
void check_schedule(const ReplicaOptions& options, const pipeline::Placement& placement);
// The same for averages of values among workers of so many ranks each; for a communication hook,
// for the scale of what it sums, and for rounding. `sums`: of some parameters the ranks of a worker
// sum their gradients.
void check_averages(const ReplicaOptions& options, bool sums, int ranks_of_a_worker);
bool sums_over_others(const Model& model, const pipeline::Placement& placement);
// The same for parameter servers, on so many ranks.
void check_servers(const ReplicaOptions& options, int ranks, bool cut);
void check_updates(const ReplicaOptions& options, const Model& model, const Optimizer& optimizer);
// The same for what a model's experts need.
void check_experts(Model& model, const ReplicaOptions& options);
void check_compression(const ReplicaOptions& options, const pipeline::Placement& placement);
void check_scale(const CommunicationHook& hook, const ReplicaOptions& options);
// The same for gradients that are sent as factors. `compressed`: some gradients are compressed.
void check_factors(const ReplicaOptions& options, Model& model,
                   const pipeline::Placement& placement, bool compressed);
void check_rounding(const ReplicaOptions& options);

// Whether ranks do not wait for each other in each step, so that all of them learn what became of
// several steps after the last one.
bool tells_late(const ReplicaOptions& options);

// What is said of a step in which `what` is not finite.
Error diverged(int64_t step, const std::string& what, double learning_rate);

// With the storage that servers need: who has a shard's masters serves it.
ReplicaOptions with_shards(ReplicaOptions options);

// Whether a rank of ZeRO stage 2 or 3 keeps shards of the sums of several micro-batches, which it
// then sums over ranks one by one. In deterministic mode the sums, and their bits, are those of the
// other stages.
bool shards_sums(const ReplicaOptions& options);

// Throws Error(invalid_argument) where the model's parameters are cut for another place of another
// mesh.
void check_cuts(Model& model, const MeshPlace& place);

// Makes the hook for a layout, once the replica has one.
using HookFactory = std::function<std::unique_ptr<CommunicationHook>(const Layout&)>;

// One of these a rank; every call is made by all ranks, in one order.
class Replica {
 public:
  // Initial values are drawn. `model` outlives it.
  Replica(Mesh mesh, Model& model, std::unique_ptr<Optimizer> optimizer,
          const ReplicaOptions& options, const HookFactory& hook = nullptr);

  // One step, counted from 1. Throws Error(invalid_argument) on every rank, naming step, rank and
  // layer, at the first NaN or infinity, unless losses are scaled: then the step is skipped.
  StepResult step(const StepBatches& batches, int64_t step, double learning_rate);
  // The largest of all ranks' values, after `step`.
  int32_t largest_on_any_rank(int32_t value, int64_t step);
  // Steps from `first` on, each with its learning rate. Schedules that are not flushed change
  // weights while the next steps' micro-batches are under way, up to the last step's end. With
  // servers or values of their own ranks learn of the steps' losses after the last one. Others make
  // one step after the other.
  std::vector<StepResult> run(std::span<const StepBatches> steps, int64_t first,
                              std::span<const double> learning_rates);
  // The mean loss over all ranks' micro-batches; `passes` as in StepBatches. Where each rank has
  // values of its own, it is the loss of their mean.
  Evaluation evaluate(std::span<const MicroBatch> own, int64_t passes);

  // Named pieces of what this rank owns, for checkpoints: "model" and the optimizer's state names.
  std::vector<std::string> kinds() const;
  // The elements of a kind, 1 x count in fp32 (a model without masters: in its type); they may be
  // written between finish_values() and publish(), which makes them everybody's.
  Tensor values_of(const OwnedPiece& piece, size_t kind) const;
  const std::vector<OwnedPiece>& owned() const { return storage_.owned(); }
  // Whether the ranks of a stage own different parts; else each owns all of it.
  bool sharded() const { return options_.storage.stage > 0; }
  // Whether this rank's pieces are nobody else's, or it is the first that has them (but for those
  // that are marked as copies).
  bool saves() const {
    const MeshPlace& place = mesh_.place();
    return sharded() || (place.first_along(kBatchAxes.without(place.experts)) &&
                         stage() == placement_.holders.front());
  }
  // Whether it is the first of its stage.
  bool leads_stage() const { return first_of_model() && group_rank_ == 0; }
  void finish_values();
  void publish();
  // The running statistics of this rank's units. Before they are saved or used those of all ranks
  // of the stage become the first rank's; where ranks have values of their own, their mean.
  std::vector<NamedBuffer> buffers();
  void share_buffers();
  // Shows all that checkpoints keep; what the visitor changes is everybody's after publish().
  // Collective.
  void visit_state(StateVisitor& visitor);
  const ParameterStorage& storage() const { return storage_; }
  const ParameterSpec& spec(int parameter) const {
    return model_.parameters().specs()[static_cast<size_t>(parameter)];
  }
  Communicator& group() { return group_; }  // the ranks that have the same parameters
  int group_size() const { return group_.size(); }
  int group_rank() const { return group_rank_; }
  // True for the first tensor rank, which reports the losses that all of them have.
  bool first_of_model() const { return mesh_.place().first_along({Axis::tensor}); }
  // Records what is done from now on. The trace outlives the replica.
  void record(Trace& trace);
  // Measures the parts of steps from now on. The profiler outlives the replica.
  void profile(StepProfiler& profiler);
  const Updater& updater() const { return updater_; }
  // Whether run() takes steps in which ranks do not wait for each other.
  bool has_servers() const { return servers_ != nullptr; }
  std::optional<int> recorded_ranks(int64_t step) { return synchronizer_->recorded_ranks(step); }
  Staleness staleness() const { return has_servers() ? servers_->staleness() : Staleness(); }
  const StepGradients& gradients() const { return gradients_; }

  MemoryReport memory() const;
  PipelineReport report_pipeline() { return gradients_.report(); }
  // Time that this rank's own work stood still for others, and bytes that it has sent, since
  // construction.
  std::chrono::nanoseconds waited() const {
    return synchronizer_->waited() + gradients_.waited() + mesh_.said().waited + met_;
  }
  // By axis; gradients and values that are summed over other axes too as the data axis's.
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
  // What can go wrong on one rank; all ranks learn the first rank's.
  struct Trouble {
    enum Kind : int32_t { none, loss, gradient };
    int32_t kind = none;
    int32_t index = 0;  // of the unit, or the parameter
  };

  // An overflow, and experts' loads, are of all ranks' samples in each step.
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
  Communicator group_;  // ranks with the same units: they sum gradients, and share what is sharded
  int group_rank_ = 0;
  std::vector<FactorTraffic> factors_;
  ParameterStorage storage_;
  // A step's three parts: what ranks tell each other of gradients and values; gradients; new
  // values.
  std::unique_ptr<Synchronizer> synchronizer_;
  ParameterServer* servers_ = nullptr;  // it, where it is one
  GradientProbe probe_;                 // around it
  std::optional<int> overweight_;       // the parameter whose gradient a weight made infinite
  StepGradients gradients_;
  Updater updater_;
  pipeline::WeightVersions versions_;
  std::optional<MeanValues> mean_;   // as it was saved, until the next step
  std::chrono::nanoseconds met_{0};  // time in which ranks met
  Trace* trace_ = nullptr;
  StepProfiler* profiler_ = nullptr;
  // Each around the hooks before it: hooks_ is the outermost.
  std::optional<TracingHooks> tracing_;
  std::optional<ProfilingHooks> profiling_;
  UnitHooks* hooks_ = &probe_;
};

}  // namespace tutti::training
