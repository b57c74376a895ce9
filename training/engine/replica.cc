#include "training/engine/replica.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/core/group.h"
#include "training/engine/replica_parts.h"
#include "training/kernels/elementwise.h"
#include "training/parallel/rank_reducer.h"

namespace tutti::training {

Replica::Replica(Mesh mesh, Model& model, std::unique_ptr<Optimizer> optimizer,
                 const ReplicaOptions& options, const HookFactory& hook)
    : mesh_(std::move(mesh)),
      model_(model),
      options_(with_shards(options)),
      threads_(options.threads),
      plans_(made_on_all(world(), [&] { return make_plans(mesh_, options.pipeline); })),
      placement_(made_on_all(world(), [&] { return place_model(plans_, model, options, mesh_); })),
      group_(ranks_along(mesh_, kBatchAxes, placement_)),
      group_rank_(group_.rank()),
      factors_(made_on_all(world(),
                           [&] {
                             return factor_layers(model, options_.factors,
                                                  storage_options(options_, placement_, model,
                                                                  mesh_.place(), *optimizer, {}),
                                                  group_.size());
                           })),
      storage_(make_groups(mesh_, model, group_, placement_), model.parameters(),
               storage_options(options_, placement_, model, mesh_.place(), *optimizer, factors_)),
      synchronizer_(
          make_synchronizer(model, storage_, options, placement_, mesh_, hook, *optimizer)),
      servers_(options.sync.has_servers() ? static_cast<ParameterServer*>(synchronizer_.get())
                                          : nullptr),
      // Norms are measured only if each rank has the whole gradient of its micro-batch: all ranks
      // are data-parallel, and no gradient exists only as factors.
      probe_(*synchronizer_, model,
             {.each_micro_batch = storage_.adds_to_shards() || storage_.sums_in_order(),
              .measures = mesh_.size(Axis::data) == world().size() && factors_.empty() &&
                          synchronizer_->sums_gradients() && !has_servers()}),
      gradients_(mesh_, model, plans_, placement_, synchronizer_->sums_gradients(),
                 runner_options(options.runner, storage_, mesh_)),
      updater_(std::move(optimizer), model, storage_, group_,
               {.clip = options.clip,
                .loss_scaling = options.loss_scaling,
                .stochastic_rounding = options.stochastic_rounding,
                .seed = options.seed}),
      versions_(storage_) {
  // Creates the group here, because creation is collective and later some ranks might never send a
  // halo.
  mesh_.along(Axis::spatial);
  made_on_all(world(), [&] { check_updates(options_, model, updater_.optimizer()); });
  check_products(options_, updater_.optimizer(), mesh_);
  gradients_.set_hooks(probe_);
  storage_.fill_owned([&](const OwnedPiece& piece, std::span<float> values) {
    initial_values(*piece.spec, options_.seed, piece.piece.first, values);
  });
  synchronizer_->publish_values();
}

// Sums gradients of parameters that two stages use. Each stage adds up its own micro-batches, then
// adds the other stage's sum.
void Replica::join_tied_gradients() {
  Communicator& stages = mesh_.along(Axis::pipeline);
  for (const auto& [parameter, peer] : placement_.joined) {
    const Tensor own = model_.parameters().at(parameter).gradient;
    synchronizer_->begin_join(parameter);
    BufferPool& pool = storage_.pool();
    const Tensor other = tensor_at(pool.acquire(own.bytes()), own.dtype, own.rows, own.cols);
    Work received = stages.recv_async(as_buffer(other), peer);
    stages.send(as_const(as_buffer(own)), peer);
    received.wait();
    add(own, other, own);
    pool.release(other.data, other.bytes());
    synchronizer_->join(parameter);
  }
}

// Returns {S, 1, 1 / samples}, or zeros if this rank has no micro-batch. S is the squared norm of
// the gradient of its first micro-batch's mean loss. The probe measures the norm of this gradient
// times loss_scale times (targets of the micro-batch / targets of the step); `factor` undoes both
// factors.
std::array<double, 3> Replica::micro_batch_square(const StepBatches& batches,
                                                  const StepCounts& counts,
                                                  double loss_scale) const {
  if (!probe_.measures() || batches.own.empty() || batches.own.front().weight == 0) return {};
  const auto own = static_cast<double>(model_.targets_in(batches.own.front()));
  if (own == 0) return {};
  const double factor = static_cast<double>(counts.targets) / own / loss_scale;
  const auto samples = static_cast<double>(batches.own.front().samples);
  return {probe_.square() * factor * factor, 1, 1 / samples};
}

// Runs `work`. An error on one rank aborts all communicators, so that a rank that waits on any of
// them reports the reason.
template <typename Work>
auto Replica::ending_all(const Work& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    abort_all(error.what());
    throw;
  }
}

void Replica::abort_all(const std::string& reason) {
  mesh_.abort(reason);
  for (Communicator ranks : storage_.groups().ranks) ranks.abort(reason);
  synchronizer_->abort(reason);
}

// Runs `work`. If another rank reported an error, adds the stages of this rank and of the failed
// rank to the error, unless the executor has done so.
template <typename Work>
auto Replica::with_places(int64_t step, const Work& work) {
  try {
    return ending_all(work);
  } catch (const pipeline::PlacedError&) {
    throw;
  } catch (const Error& error) {
    if (!pipelined() || !pipeline::follows_from_other_rank(error.code())) throw;
    const int own = world().rank();
    std::string where =
        cat(world().describe(own), ", stage ", stage(), ", at the end of step ", step);
    const std::optional<int> culprit = world().member(error.rank());
    if (culprit && *culprit != own) {
      where += cat("; ", world().describe(*culprit), " is stage ",
                   mesh_.place_of(*culprit, Axis::pipeline));
    }
    throw pipeline::PlacedError(error, where);
  }
}

StepResult Replica::step(const StepBatches& batches, int64_t step, double learning_rate) {
  if (is_late()) return run({&batches, 1}, step, {&learning_rate, 1}).front();
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

Replica::StepFailure Replica::trouble() const {
  if (gradients_.broken_unit()) return {StepFailure::loss, *gradients_.broken_unit()};
  if (probe_.broken()) return {StepFailure::gradient, *probe_.broken()};
  if (overweight_) return {StepFailure::gradient, *overweight_};
  return {};
}

// Weights gradients by the rank's number of targets, so that the mean of all ranks' gradients is
// the mean over all targets.
void Replica::weigh_own_gradients(const StepCounts& own, const StepCounts& all) {
  overweight_.reset();
  const int64_t parts = group_.size() * own.targets;
  const bool weighs = !synchronizer_->weights_values(own.targets) && all.targets != parts;
  if (weighs) {
    const double weight = static_cast<double>(parts) / static_cast<double>(all.targets);
    for (size_t bucket = 0; bucket < storage_.layout().buckets.size(); ++bucket) {
      const Tensor gradients = storage_.gradients(static_cast<int>(bucket));
      scale(gradients, gradients, weight);
    }
  }
  // Weighing, or the sum over two stages, may exceed the range of f16 on this worker alone.
  const bool has_grown = weighs || !placement_.joined.empty();
  if (has_grown && storage_.gradient_type() == DType::f16) overweight_ = first_infinite_parameter();
}

std::optional<int> Replica::first_infinite_parameter() const {
  for (const OwnedPiece& piece : storage_.owned()) {
    if (!all_finite(piece.gradient).get()) return piece.piece.parameter;
  }
  return std::nullopt;
}

void Replica::be_slow(std::chrono::steady_clock::time_point began) const {
  if (options_.slowdown <= 1) return;
  const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - began;
  std::this_thread::sleep_for(taken * (options_.slowdown - 1));
}

void Replica::begin_gradients(const std::vector<int64_t>& passes) {
  synchronizer_->begin_step(passes);
  probe_.begin_step(passes);
}

StepResult Replica::take_step(const StepBatches& batches, int64_t step, double learning_rate) {
  const double loss_scale = updater_.loss_scale();
  const std::vector<StepCounts> counts = gradients_.count({&batches, 1});
  mean_.reset();
  gradients_.count_experts(batches);
  begin_gradients(gradients_.passes(gradients_.plan(batches.passes)));
  const auto began = std::chrono::steady_clock::now();
  gradients_.run(batches, counts.front().scales(loss_scale));
  be_slow(began);
  join_tied_gradients();
  if (!synchronizer_->sums_gradients()) {
    weigh_own_gradients(counts.front(), gradients_.all_counts().front());
  }
  {
    const ProfileSpan span(profiler_, StepProfiler::Phase::exchange);
    synchronizer_->finish_gradients();
  }

  const StepFailure trouble = this->trouble();
  const auto [square, measured, inverse] = micro_batch_square(batches, counts.front(), loss_scale);
  const auto flag = [](bool set) { return set ? 1.0 : 0.0; };
  // Only the first of the ranks that have the same batches counts them.
  const bool counts_next =
      batches.next != nullptr && mesh_.place().first_along(AxisSet::all().without(kBatchAxes));
  const StepCounts next = counts_next ? gradients_.own_counts(*batches.next) : StepCounts();
  std::array<double, 8> more = {flag(trouble.kind != StepFailure::none),
                                square,
                                measured,
                                inverse,
                                flag(batches.sign && batches.sign()),
                                flag(batches.next == nullptr),
                                static_cast<double>(next.targets),
                                static_cast<double>(next.samples)};
  StepResult result{gradients_.share(gradients_.all_counts(), more).front()};
  const auto [troubled, squares, ranks, inverses, signs, unknown, targets, samples] = more;
  if (unknown == 0) {
    gradients_.expect({static_cast<int64_t>(targets), static_cast<int64_t>(samples)});
  }
  if (ExpertLoad* const load = model_.expert_load()) {
    load->share();
    result.expert_load = load->by_layer();
    result.dropped = load->dropped();
  }
  result.signs = static_cast<int>(signs);
  result.loss_scale = loss_scale;
  if (ranks > 0) {
    result.micro_batch_square = squares / ranks;
    result.micro_batch_samples = ranks / inverses;
  }
  if (troubled > 0) {
    result.overflow = describe(gather(trouble));
  } else {
    result.gradient_norm = update(learning_rate);
  }
  result.skipped = troubled > 0 || !std::isfinite(result.gradient_norm);
  if (model_.expert_load() != nullptr && !result.skipped) model_.expert_load()->move_bias();
  if (updater_.adapt_scale(result.skipped)) return result;
  const std::string what =
      result.overflow.empty() ? "the gradients' sum over ranks" : result.overflow;
  throw_on_all(world(), diverged(step, what, learning_rate));
}

// Runs the optimizer. Returns the norm of the gradients; if it is not finite, changes nothing.
double Replica::update(double learning_rate) {
  const TraceSpan span(trace_, "optimizer", TraceCategory::optimizer);
  const ProfileSpan part(profiler_, StepProfiler::Phase::update);
  // The norm is a sum over all stages. If several stages have the same parameters (Chimera), only
  // the first of them counts.
  const AxisSet ranks = counting_axes(model_, options_.storage.stage) | AxisSet{Axis::pipeline};
  RankReducer reducer(sharded() ? world() : mesh_.group(ranks),
                      sharded() || stage() == placement_.holders.front());
  const double norm = updater_.update(storage_.owned(), learning_rate, reducer);
  if (!std::isfinite(norm)) return norm;
  synchronizer_->after_update();
  if (synchronizer_->restarts_optimizer()) updater_.restart();
  return norm;
}

std::vector<StepResult> Replica::run(std::span<const StepBatches> steps, int64_t first,
                                     std::span<const double> learning_rates) {
  const UseThreads use(threads_);
  if (!plans_.flushed()) {
    return ending_all([&] { return run_unflushed(steps, first, learning_rates); });
  }
  if (is_late()) {
    return with_places(first, [&] {
      return has_servers() ? run_with_servers(steps, first, learning_rates)
                           : run_separately(steps, first, learning_rates);
    });
  }
  std::vector<StepResult> results;
  for (size_t i = 0; i < steps.size(); ++i) {
    results.push_back(step(steps[i], first + static_cast<int64_t>(i), learning_rates[i]));
  }
  return results;
}

std::vector<Replica::StepFailure> Replica::gather(const StepFailure& own) {
  std::vector<StepFailure> all(static_cast<size_t>(world().size()));
  world().all_gather({&own, sizeof(own) / sizeof(int32_t), DType::i32},
                     {all.data(), all.size() * sizeof(own) / sizeof(int32_t), DType::i32});
  return all;
}

// Describes only the failure that comes first in the model, because a NaN in a stage's output
// reaches all later stages.
std::string Replica::describe(const std::vector<StepFailure>& troubles) const {
  const auto order = [](const StepFailure& trouble) {
    switch (trouble.kind) {
      case StepFailure::loss:
        return std::pair(0, trouble.index);
      case StepFailure::gradient:
        return std::pair(1, 0);
      default:
        return std::pair(2, 0);
    }
  };
  const auto first = std::ranges::min_element(troubles, {}, order);
  const auto index = static_cast<size_t>(first->index);
  const std::string where = mesh_.world().describe(static_cast<int>(first - troubles.begin()));
  if (first->kind == StepFailure::loss) {
    return cat("the output of ", model_.units()[index]->name(), " on ", where);
  }
  return cat("the gradient of ", model_.parameters().specs()[index].name, " on ", where,
             ", before any reduction,");
}

Evaluation Replica::evaluate(std::span<const MicroBatch> own, int64_t passes) {
  if (passes == 0) return {};
  const UseThreads use(threads_);
  return ending_all([&]() -> Evaluation {
    share_buffers();
    std::optional<MeanValues> mean;
    std::optional<MeanValues::Shown> shown;
    if (!synchronizer_->sums_gradients()) {
      shown.emplace(mean.emplace(storage_, group_, synchronizer_->shared_values()));
    }
    gradients_.evaluate(own, passes);
    const StepLosses all = gradients_.share({}, {}).front();
    return {all.loss, all.correct, all.targets};
  });
}

void Replica::record(Trace& trace) {
  trace_ = &trace;
  wrap_hooks(tracing_.emplace(*hooks_, model_, trace));
  synchronizer_->observe(record_collectives(trace));
  mesh_.record(trace);
  if (pipelined()) gradients_.record(trace);
}

void Replica::profile(StepProfiler& profiler) {
  profiler_ = &profiler;
  wrap_hooks(profiling_.emplace(*hooks_, profiler));
}

void Replica::wrap_hooks(UnitHooks& hooks) {
  hooks_ = &hooks;
  gradients_.set_hooks(hooks);
}

MemoryReport Replica::memory() const {
  const ModelRunner& runner = gradients_.runner();
  MemoryReport report{.storage = storage_.bytes(),
                      .optimizer = updater_.bytes(),
                      .activations = static_cast<int64_t>(runner.activation_bytes()),
                      .boundaries = gradients_.executor().buffer_bytes() + mesh_.message_bytes(),
                      .compression = synchronizer_->bytes()};
  const OffloadOptions& offload = options_.storage.offload;
  report.files = report.storage.files + static_cast<int64_t>(runner.file_bytes());
  if (offload.optimizer()) report.files += std::exchange(report.optimizer, 0);
  const auto bytes = [](DType dtype) { return static_cast<int64_t>(size_of(dtype)); };
  const DType type = storage_.options().dtype;
  report.pages = most_in_memory(
      storage_.layout(), offload,
      {.files = report.files,
       .of_value = storage_.offloads_values() ? bytes(type) : 0,
       .of_gradient = storage_.offloads_gradients() ? bytes(storage_.gradient_type()) : 0,
       .wholes = offload.optimizer() ? updater_.bytes_of_wholes() : 0,
       .activations = static_cast<int64_t>(runner.page_bytes())});
  return report;
}

}  // namespace tutti::training
