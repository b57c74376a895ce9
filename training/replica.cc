#include "training/replica.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"
#include "training/optimizers/gradient_norm.h"
#include "training/parallel/rank_reducer.h"
#include "training/parallel/throw_on_all.h"
#include "training/pipeline/places.h"

namespace tutti::training {
namespace {

RunnerOptions runner_options(RunnerOptions options, DType dtype, Mesh& mesh) {
  options.dtype = dtype;
  options.mesh = &mesh;
  return options;
}

pipeline::Plans make_plans(const Mesh& mesh, const PipelineOptions& options) {
  return {options.schedule, mesh.size(Axis::pipeline), options.virtual_stages};
}

pipeline::Placement place_model(pipeline::Plans& plans, Model& model, const ReplicaOptions& options,
                                const MeshPlace& place) {
  check_rounding(options);
  check_cuts(model, place);
  std::vector<int> cut = options.pipeline.cut;
  if (cut.empty()) cut = pipeline::estimated_cut(model, plans.chunks());
  const pipeline::Placement placement =
      make_placement(plans.layout(), model, cut, place.place(Axis::pipeline));
  check_schedule(options, placement);
  return placement;
}

// Ranks with the same units: those along these axes, on each of the stages that hold them.
Communicator ranks_along(Mesh& mesh, AxisSet axes, const pipeline::Placement& placement) {
  if (placement.holders.size() == 1) return mesh.group(axes);
  std::vector<int> ranks;
  for (const int stage : placement.holders) {
    for (int rank = 0; rank < mesh.world().size(); ++rank) {
      if (mesh.place_of(rank, Axis::pipeline) != stage) continue;
      if (mesh.is_beside(rank, AxisSet::all().without(axes | AxisSet{Axis::pipeline}))) {
        ranks.push_back(rank);
      }
    }
  }
  return mesh.world().create(ranks);
}

// Gradients are summed along the data axis, and along those where they are partial sums. The first
// group is that of the data axis alone.
ParameterGroups make_groups(Mesh& mesh, Model& model, const Communicator& data,
                            const pipeline::Placement& placement) {
  std::map<AxisSet, std::vector<int>> by_axes;
  for (const int parameter : placement.parameters) {
    const ParameterSpec& spec = model.parameters().specs()[static_cast<size_t>(parameter)];
    const AxisSet partial = spec.placement.partial & mesh.used();
    if (!partial.empty()) by_axes[partial].push_back(parameter);
  }
  ParameterGroups groups({data}, std::vector<int>(model.parameters().specs().size()));
  for (const auto& [partial, parameters] : by_axes) {
    groups.ranks.push_back(ranks_along(mesh, partial | AxisSet{Axis::data}, placement));
    for (const int parameter : parameters) {
      groups.group_of[static_cast<size_t>(parameter)] = static_cast<int>(groups.ranks.size()) - 1;
    }
  }
  return groups;
}

StorageOptions storage_options(const ReplicaOptions& options, const pipeline::Placement& placement,
                               Model& model, const MeshPlace& place) {
  StorageOptions storage = options.storage;
  storage.parameters = placement.parameters;
  storage.copies = placement.copies;
  // Along axes where ranks have the same of a parameter, the first one counts it.
  for (const int parameter : placement.parameters) {
    const ParameterSpec& spec = model.parameters().specs()[static_cast<size_t>(parameter)];
    const AxisSet cut =
        spec.placement.cut_over() | (storage.stage > 0 ? spec.placement.partial : AxisSet());
    if (place.first_along(kModelAxes.without(cut))) continue;
    storage.copies.push_back(parameter);
  }
  storage.masters = !options.stochastic_rounding;
  if (placement.holders.size() > 1) storage.one_pass = false;
  return storage;
}

// Where several stages hold the same units (Chimera), they come to the end of a bucket at different
// places of their tables: nobody may stand still for its sum, or for memory, before the last one.
DataParallelOptions parallel_options(const ReplicaOptions& options,
                                     const pipeline::Placement& placement) {
  DataParallelOptions parallel = options.data_parallel;
  for (const auto& joined : placement.joined) parallel.joined.push_back(joined.parameter);
  if (placement.holders.size() > 1) parallel.overlap = true;
  return parallel;
}

std::unique_ptr<CommunicationHook> make_hook(const HookFactory& factory, const Layout& layout,
                                             const ReplicaOptions& options,
                                             const pipeline::Placement& placement) {
  std::unique_ptr<CommunicationHook> hook = factory ? factory(layout) : nullptr;
  if (hook == nullptr) return hook;
  check_compression(placement);
  check_scale(*hook, options);
  return hook;
}

// 0 where there is nothing.
double mean_of(double sum, int64_t count) {
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

}  // namespace

Replica::Replica(Mesh mesh, Model& model, std::unique_ptr<Optimizer> optimizer,
                 const ReplicaOptions& options, const HookFactory& hook)
    : mesh_(std::move(mesh)),
      model_(model),
      options_(options),
      threads_(options.threads),
      plans_(made_on_all(world(), [&] { return make_plans(mesh_, options.pipeline); })),
      placement_(
          made_on_all(world(), [&] { return place_model(plans_, model, options, mesh_.place()); })),
      group_(ranks_along(mesh_, {Axis::data}, placement_)),
      group_rank_(group_.rank()),
      optimizer_(std::move(optimizer)),
      state_names_(optimizer_->state_names()),
      storage_(make_groups(mesh_, model, group_, placement_), model.parameters(),
               storage_options(options, placement_, model, mesh_.place())),
      data_parallel_(model, storage_, parallel_options(options, placement_),
                     make_hook(hook, storage_.layout(), options, placement_)),
      runner_(model, runner_options(options.runner, options.storage.dtype, mesh_)),
      executor_(pipeline::Boundary(mesh_.along(Axis::pipeline), mesh_.along(Axis::tensor))),
      model_stage_(model, runner_, placement_, options.storage.dtype),
      versions_(storage_) {
  if (pipelined()) polling_.emplace(inner_hooks(), executor_);
  const auto owned = static_cast<size_t>(storage_.layout().owned_size);
  for (size_t i = 0; i < state_names_.size(); ++i) {
    states_.push_back(group_.allocate<float>(owned));
  }
  if (sharded()) matrices_.emplace(group_, storage_.layout(), model.parameters().specs());
  if (options.loss_scaling) scaler_.emplace(*options.loss_scaling);
  storage_.fill_owned([&](const OwnedPiece& piece, std::span<float> values) {
    initial_values(*piece.spec, options_.seed, piece.piece.first, values);
  });
  data_parallel_.publish_values();
}

// What ended one rank's part of a step is told to all others, which would only see it leave. Of
// deaths they hear by themselves.
template <typename Work>
auto Replica::ending_all(const Work& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    if (known == nullptr || known->code() != ErrorCode::rank_died) {
      for (Communicator* reached : {&mesh_.along(Axis::pipeline), &group_, &world()}) {
        reached->abort(error.what());
      }
    }
    throw;
  }
}

void Replica::run_pipeline(const pipeline::Plan& plan) {
  ending_all([&] { executor_.run(plan, model_stage_); });
}

// This rank's gradients of all micro-batches, summed over the ranks of its stage.
void Replica::run_gradients(const StepBatches& batches, const Counts& counts, double loss_scale) {
  const pipeline::Plan& plan = plans_.training(batches.passes);
  data_parallel_.begin_step(
      passes_by_unit(plan, placement_, stage(), static_cast<int>(model_.units().size())));
  std::vector<pipeline::StageBatch> own;
  pipeline::append_step(own, batches.own, plan.schedule.micro_batches, counts.scales(loss_scale));
  model_stage_.begin(std::move(own), true, hooks());
  run_pipeline(plan);
  join_tied_gradients();
  data_parallel_.finish_gradients();
}

// Both stages that use a parameter add up their own micro-batches, then each other's sum.
void Replica::join_tied_gradients() {
  Communicator& stages = mesh_.along(Axis::pipeline);
  for (const auto& [parameter, peer] : placement_.joined) {
    const Tensor own = model_.parameters().at(parameter).gradient;
    BufferPool& pool = storage_.pool();
    const Tensor other = tensor_at(pool.acquire(own.bytes()), own.dtype, own.rows, own.cols);
    const auto count = static_cast<uint64_t>(own.size());
    Work received = stages.recv_async({other.data, count, other.dtype}, peer);
    stages.send({own.data, count, own.dtype}, peer);
    received.wait();
    add(own, other, own);
    pool.release(other.data, other.bytes());
    data_parallel_.join(parameter);
  }
}

LossScales Replica::Counts::scales(double loss_scale) const {
  return {mean_of(loss_scale, targets), mean_of(loss_scale, samples)};
}

// Before the step: its gradients are scaled by what there is of them.
std::vector<Replica::Counts> Replica::count(std::span<const StepBatches> steps) {
  std::vector<Counts> counts(steps.size());
  for (size_t step = 0; step < steps.size(); ++step) {
    for (const MicroBatch& batch : steps[step].own) {
      if (batch.weight == 0) continue;
      counts[step].targets += model_.targets_in(batch);
      counts[step].samples += batch.samples;
    }
  }
  Communicator& ranks = mesh_.along(Axis::data);
  if (ranks.size() > 1) {
    ending_all([&] { ranks.all_reduce(std::span(&counts.front().targets, 2 * counts.size())); });
  }
  for (size_t step = 0; step < steps.size(); ++step) {
    if (steps[step].targets != 0) counts[step].targets = steps[step].targets;
  }
  return counts;
}

// Sums over the ranks of each stage that has losses, in the order that they have without a
// pipeline; then one rank of each tells all others. Returns the number of ranks in trouble.
double Replica::share(std::span<double> sums, double troubled) {
  std::vector<double> values(sums.begin(), sums.end());
  if (group_.size() < world().size()) {
    if (model_stage_.has_losses()) group_.all_reduce(std::span<double>(values));
    if (!leads_stage()) std::ranges::fill(values, 0);
  }
  values.push_back(troubled);
  world().all_reduce(std::span<double>(values));
  std::copy_n(values.begin(), sums.size(), sums.begin());
  return values.back();
}

void Replica::tell(std::span<const double> sums, const Counts& counts, StepResult& result) const {
  result.targets = counts.targets;
  result.loss = mean_of(sums[pipeline::loss_sum], counts.targets);
  result.correct = mean_of(sums[pipeline::correct_sum], counts.targets);
  size_t next = pipeline::first_named_sum;
  for (const auto& [unit, name] : model_stage_.named_losses()) {
    result.losses[name] += mean_of(sums[next++], counts.samples);
  }
}

// What goes wrong meanwhile is told with the stages of the ranks that it names.
template <typename Work>
auto Replica::with_places(int64_t step, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (!pipelined() || !pipeline::told_by_others(error.code())) throw;
    const std::string places = places_missing_in(error.what(), step);
    if (places.empty()) throw;
    throw Error(error.code(), error.what(), {.where = places, .rank = error.rank()});
  }
}

StepResult Replica::step(const StepBatches& batches, int64_t step, double learning_rate) {
  const UseThreads use(threads_);
  return with_places(step, [&] { return take_step(batches, step, learning_rate); });
}

int32_t Replica::largest_on_any_rank(int32_t value, int64_t step) {
  if (world().size() == 1) return value;
  return with_places(step, [&] {
    world().all_reduce(std::span(&value, 1), ReduceOp::max);
    return value;
  });
}

// Of this rank, unless the executor has told it, and the stages of all other ranks that are named.
std::string Replica::places_missing_in(const std::string& text, int64_t step) {
  const auto has = [&](const std::string& part) { return text.find(part) != std::string::npos; };
  const int own = world().rank();
  std::string places;
  if (!has(cat(world().describe(own), ", stage "))) {
    places = cat(world().describe(own), ", stage ", stage(), ", at the end of step ", step);
  }
  for (int rank = 0; rank < world().size(); ++rank) {
    const std::string name = world().describe(rank);
    if (rank == own || !has(name) || has(name + ", stage ") || has(name + " is stage ")) continue;
    places +=
        cat(places.empty() ? "" : "; ", name, " is stage ", mesh_.place_of(rank, Axis::pipeline));
  }
  return places;
}

StepResult Replica::take_step(const StepBatches& batches, int64_t step, double learning_rate) {
  StepResult result;
  result.loss_scale = scaler_ ? scaler_->scale() : 1;
  const Counts counts = count({&batches, 1}).front();
  run_gradients(batches, counts, result.loss_scale);
  Trouble trouble;
  if (model_stage_.broken_unit()) {
    trouble = {Trouble::loss, *model_stage_.broken_unit()};
  } else if (data_parallel_.broken_gradient()) {
    trouble = {Trouble::gradient, data_parallel_.broken_gradient()->parameter};
  }
  std::vector<double> sums = model_stage_.sums(0, batches.own.size());
  const double troubled = share(sums, trouble.kind == Trouble::none ? 0 : 1);
  tell(sums, counts, result);

  if (troubled > 0) result.overflow = describe(gather(trouble));
  const bool overflow = troubled > 0 || !update(result, learning_rate);
  if (scaler_ && !(overflow && scaler_->exhausted())) {
    result.skipped = scaler_->update(overflow);
  } else if (overflow) {
    throw_on_all(
        world(),
        Error(ErrorCode::invalid_argument,
              cat("step ", step, ": ",
                  result.overflow.empty() ? "the gradients' sum over ranks" : result.overflow,
                  " is not finite"),
              {.cause = cat("the training diverged, at a learning rate of ", learning_rate),
               .remedy = "try a smaller learning rate, --clip or a longer warm-up"}));
  }
  return result;
}

// False if the gradients' norm is not finite; nothing is updated then.
bool Replica::update(StepResult& result, double learning_rate) {
  const TraceSpan span(trace_, "optimizer", TraceCategory::optimizer);
  // Sharded pieces lie on all ranks, else on all but the data-parallel ones, and on all stages, of
  // which some may have the same.
  RankReducer reducer(sharded() ? world() : mesh_.group(AxisSet::all().without({Axis::data})),
                      sharded() || stage() == placement_.holders.front());
  const double norm = gradient_norm(storage_.owned(), reducer) / result.loss_scale;
  result.gradient_norm = norm;
  if (!std::isfinite(norm)) return false;
  const double clipped = options_.clip ? clip_factor(norm, *options_.clip) : 1;
  const std::vector<std::span<float>> states = this->states();
  optimizer_->step(storage_.owned(), states,
                   next_update(learning_rate, clipped / result.loss_scale), reducer);
  data_parallel_.publish_values();
  return true;
}

// Counts the update that it is for.
StepOptions Replica::next_update(double learning_rate, double gradient_factor) {
  return {.step = ++updates_,
          .learning_rate = learning_rate,
          .gradient_factor = gradient_factor,
          .parameters = model_.parameters().size(),
          .units = static_cast<int>(model_.units().size()),
          .matrices = matrices_ ? &*matrices_ : nullptr,
          .stochastic_rounding = options_.stochastic_rounding,
          .seed = options_.seed};
}

std::vector<StepResult> Replica::run(std::span<const StepBatches> steps, int64_t first,
                                     std::span<const double> learning_rates) {
  const UseThreads use(threads_);
  if (!plans_.flushed()) return run_unflushed(steps, first, learning_rates);
  std::vector<StepResult> results;
  for (size_t i = 0; i < steps.size(); ++i) {
    results.push_back(step(steps[i], first + static_cast<int64_t>(i), learning_rates[i]));
  }
  return results;
}

std::vector<Replica::Trouble> Replica::gather(const Trouble& own) {
  std::vector<Trouble> all(static_cast<size_t>(world().size()));
  world().all_gather({&own, sizeof(own) / sizeof(int32_t), DType::i32},
                     {all.data(), all.size() * sizeof(own) / sizeof(int32_t), DType::i32});
  return all;
}

// What broke first: a NaN in a stage's output goes through all later stages.
std::string Replica::describe(const std::vector<Trouble>& troubles) const {
  const auto order = [](const Trouble& trouble) {
    switch (trouble.kind) {
      case Trouble::loss:
        return std::pair(0, trouble.index);
      case Trouble::gradient:
        return std::pair(1, 0);
      default:
        return std::pair(2, 0);
    }
  };
  const auto first = std::ranges::min_element(troubles, {}, order);
  const auto index = static_cast<size_t>(first->index);
  const std::string where = mesh_.world().describe(static_cast<int>(first - troubles.begin()));
  if (first->kind == Trouble::loss) {
    return cat("the output of ", model_.units()[index]->name(), " on ", where);
  }
  return cat("the gradient of ", model_.parameters().specs()[index].name, " on ", where,
             ", before any reduction,");
}

Evaluation Replica::evaluate(std::span<const MicroBatch> own, int64_t passes) {
  if (passes == 0) return {};
  const UseThreads use(threads_);
  share_buffers();
  const pipeline::Plan& plan = plans_.evaluation(passes);
  std::vector<pipeline::StageBatch> batches;
  pipeline::append_step(batches, own, plan.schedule.micro_batches, {});
  model_stage_.begin(std::move(batches), false, hooks());
  run_pipeline(plan);
  std::vector<double> sums = model_stage_.sums(0, own.size());
  share(sums, 0);
  const auto targets = static_cast<int64_t>(sums[pipeline::target_sum]);
  return {mean_of(sums[pipeline::loss_sum], targets), mean_of(sums[pipeline::correct_sum], targets),
          targets};
}

std::vector<std::span<float>> Replica::states() const {
  std::vector<std::span<float>> states;
  for (const Memory<float>& state : states_) {
    states.emplace_back(state.get(), static_cast<size_t>(storage_.layout().owned_size));
  }
  return states;
}

std::vector<std::string> Replica::kinds() const {
  std::vector<std::string> kinds = {"model"};
  for (const std::string& name : state_names_) kinds.push_back("optimizer." + name);
  return kinds;
}

Tensor Replica::values_of(const OwnedPiece& piece, size_t kind) const {
  if (kind == 0) return piece.updated();
  return tensor_at(states_.at(kind - 1).get() + piece.piece.owned_offset, DType::f32, 1,
                   piece.piece.count);
}

void Replica::finish_values() { data_parallel_.finish_values(); }

void Replica::publish() {
  for (const OwnedPiece& piece : storage_.owned()) store_masters(piece);
  data_parallel_.publish_values();
}

std::vector<NamedBuffer> Replica::buffers() {
  std::vector<NamedBuffer> buffers = model_.buffers();
  std::erase_if(buffers, [&](const NamedBuffer& at) { return !placement_.has_unit(at.unit); });
  return buffers;
}

void Replica::share_buffers() {
  for (const NamedBuffer& buffer : buffers()) group_.broadcast(buffer.values, 0);
}

void Replica::record(Trace& trace) {
  trace_ = &trace;
  tracing_.emplace(data_parallel_, model_, trace);
  data_parallel_.observe(record_collectives(trace));
  if (!pipelined()) return;
  polling_.emplace(inner_hooks(), executor_);
  executor_.record(trace);
}

MemoryReport Replica::memory() const {
  MemoryReport report{.storage = storage_.bytes(),
                      .activations = static_cast<int64_t>(runner_.activation_bytes()),
                      .boundaries = executor_.buffer_bytes(),
                      .compression = data_parallel_.hook_bytes()};
  for (const OwnedPiece& piece : storage_.owned()) {
    report.optimizer += piece.piece.count * static_cast<int64_t>(states_.size() * sizeof(float));
  }
  return report;
}

PipelineReport Replica::report_pipeline() {
  PipelineReport report;
  if (!pipelined()) return report;
  for (const UnitRange& units : placement_.chunks) report.cut.push_back(units.begin);
  const auto everybodys = [&](int64_t own) {
    std::vector<int64_t> all(static_cast<size_t>(mesh_.size(Axis::pipeline)));
    mesh_.along(Axis::pipeline)
        .all_gather({&own, 1, DType::i64}, {all.data(), all.size(), DType::i64});
    return all;
  };
  report.activations = everybodys(executor_.most_activations());
  report.activation_bytes = everybodys(static_cast<int64_t>(runner_.activation_bytes()));
  return report;
}

}  // namespace tutti::training
