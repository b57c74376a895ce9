#include "training/engine/step_gradients.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/parallel/rank_reducer.h"

namespace tutti::training {
namespace {

// Returns the mean, or 0 for an empty set.
double mean_of(double sum, int64_t count) {
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

// Returns the layout that all tensors between units have. Any of these tensors may be sent between
// two stages.
ActivationLayout layout_between_units(const Model& model, int stages) {
  if (stages == 1) return kReplicated;  // one stage sends nothing
  const auto& units = model.units();
  const ActivationLayout layout = units.front()->output_shape().layout;
  for (size_t unit = 0; unit + 1 < units.size(); ++unit) {
    if (units[unit]->output_shape().layout == layout) continue;
    throw Error(
        ErrorCode::invalid_argument,
        cat("the output of ", units[unit]->name(),
            " has another layout over the ranks than the output of ", units.front()->name()),
        {.remedy = "use one layout for the outputs of all units except the last"});
  }
  return layout;
}

}  // namespace

LossScales StepCounts::scales(double loss_scale) const {
  return {mean_of(loss_scale, targets), mean_of(loss_scale, samples)};
}

StepGradients::StepGradients(Mesh& mesh, Model& model, pipeline::Plans& plans,
                             const pipeline::Placement& placement, bool summed,
                             const RunnerOptions& options)
    : mesh_(mesh),
      model_(model),
      plans_(plans),
      placement_(placement),
      summed_(summed),
      runner_(model, options),
      executor_(pipeline::Boundary(mesh.along(Axis::pipeline), mesh.along(Axis::tensor),
                                   layout_between_units(model, mesh.size(Axis::pipeline)))),
      stage_(model, runner_, placement, options.dtype) {
  ExpertLoad* const load = model.expert_load();
  if (load == nullptr) return;
  Communicator& ranks = mesh.group(kBatchAxes | AxisSet{Axis::pipeline});
  load->set_sum(ranks.size() == 1 ? ExpertLoad::Sum() : [&ranks](std::span<int64_t> numbers) {
    ranks.all_reduce(numbers, ReduceOp::sum);
  });
}

void StepGradients::set_hooks(UnitHooks& hooks) {
  hooks_ = &hooks;
  if (pipelined()) hooks_ = &polling_.emplace(hooks, executor_);
}

StepCounts StepGradients::own_counts(const StepBatches& batches) {
  Communicator& ranks = mesh_.group(kBatchAxes);
  StepCounts counts;
  for (const MicroBatch& batch : batches.own) {
    if (batch.weight == 0) continue;
    counts.targets += model_.targets_in(batch);
    if (mesh_.place().first_along(kPartAxes)) counts.samples += batch.samples;
  }
  const int64_t given = batches.targets;  // each rank counts its part
  if (given == 0) return counts;
  counts.targets = given / ranks.size() + (ranks.rank() < given % ranks.size() ? 1 : 0);
  return counts;
}

std::vector<StepCounts> StepGradients::count(std::span<const StepBatches> steps) {
  std::vector<StepCounts> counts;
  for (const StepBatches& step : steps) counts.push_back(own_counts(step));
  Communicator& ranks = mesh_.group(kBatchAxes);
  const std::optional<StepCounts> expected = std::exchange(expected_, std::nullopt);
  if (expected && steps.size() == 1) {
    all_counts_ = {*expected};
  } else {
    all_counts_ = counts;
    const Buffer numbers{&all_counts_.front().targets, 2 * counts.size(), DType::i64};
    if (ranks.size() > 1) counting_ = ranks.all_reduce_async(as_const(numbers), numbers);
  }
  return summed_ ? all_counts() : counts;
}

const std::vector<StepCounts>& StepGradients::all_counts() {
  counting_.wait();
  return all_counts_;
}

std::vector<int64_t> StepGradients::passes(const pipeline::Plan& plan, int64_t steps) const {
  std::vector<int64_t> passes = passes_by_unit(plan, placement_, mesh_.place(Axis::pipeline),
                                               static_cast<int>(model_.units().size()));
  for (int64_t& count : passes) count /= steps;
  return passes;
}

void StepGradients::run(const StepBatches& batches, const LossScales& scales) {
  const pipeline::Plan& plan = this->plan(batches.passes);
  std::vector<pipeline::StageBatch> all;
  pipeline::append_step(all, batches.own, plan.schedule.micro_batches, scales);
  micro_batches_ = all.size();
  stage_.begin(std::move(all), pipeline::StageMode::training, *hooks_);
  executor_.run(plan, stage_);
}

void StepGradients::run(std::span<const StepBatches> steps, std::span<const StepCounts> counts,
                        const pipeline::Plan& plan, pipeline::WeightVersions& versions,
                        std::function<void(const pipeline::Action&)> on_update) {
  std::vector<pipeline::StageBatch> all;
  for (size_t step = 0; step < steps.size(); ++step) {
    pipeline::append_step(all, steps[step].own, plan.schedule.accumulated, counts[step].scales(1));
  }
  micro_batches_ = static_cast<size_t>(plan.schedule.accumulated);
  stage_.begin(std::move(all), versions, std::move(on_update), *hooks_);
  executor_.run(plan, stage_);
}

void StepGradients::count_experts(const StepBatches& batches) {
  ExpertLoad* const load = model_.expert_load();
  if (load == nullptr) return;
  load->begin_step();
  // No extra pass is necessary if the step's forward passes count everything before backward
  // begins.
  if (!load->is_needed() || (batches.passes == 1 && !pipelined())) return;
  run_forward(batches.own, batches.passes, pipeline::StageMode::counting);
  load->share();
}

void StepGradients::evaluate(std::span<const MicroBatch> own, int64_t passes) {
  run_forward(own, passes, pipeline::StageMode::evaluation);
}

void StepGradients::run_forward(std::span<const MicroBatch> own, int64_t passes,
                                pipeline::StageMode mode) {
  const pipeline::Plan& plan = plans_.evaluation(passes);
  std::vector<pipeline::StageBatch> all;
  pipeline::append_step(all, own, plan.schedule.micro_batches, {});
  micro_batches_ = all.size();
  stage_.begin(std::move(all), mode, *hooks_);
  executor_.run(plan, stage_);
}

size_t StepGradients::sums_of_a_step() const {
  return pipeline::first_named_sum + stage_.named_losses().size();
}

void StepGradients::add_found(size_t step, LossSums& sums) const {
  sums.resize(sums_of_a_step());
  if (!reports()) return;
  for (const std::vector<double>& found : stage_.found(step * micro_batches_, micro_batches_)) {
    for (size_t i = 0; i < sums.size(); ++i) sums[i].add(found[i]);
  }
}

std::vector<StepLosses> StepGradients::share(std::span<const StepCounts> counts,
                                             std::span<double> more) {
  std::vector<LossSums> own(std::max<size_t>(1, counts.size()));
  for (size_t step = 0; step < own.size(); ++step) add_found(step, own[step]);
  return share(counts, own, more);
}

// Exchanges losses in the message that every step needs anyway to agree whether it succeeded. The
// sums are exact, and therefore independent of the layout.
std::vector<StepLosses> StepGradients::share(std::span<const StepCounts> counts,
                                             std::span<const LossSums> own,
                                             std::span<double> more) {
  std::vector<StepLosses> steps(own.size());
  const size_t of_a_step = sums_of_a_step();
  std::vector<ExactSum> sums;
  for (const LossSums& step : own) {
    sums.insert(sums.end(), step.begin(), step.end());
    sums.resize(sums.size() + of_a_step - step.size());
  }
  const size_t first_of_more = sums.size();
  sums.resize(first_of_more + more.size());
  for (size_t i = 0; i < more.size(); ++i) sums[first_of_more + i].add(more[i]);
  RankReducer everyone(mesh_.world(), true);
  sum_over_owners(sums, everyone);
  for (size_t i = 0; i < more.size(); ++i) more[i] = sums[first_of_more + i].value();
  for (size_t step = 0; step < steps.size(); ++step) {
    StepLosses& step_losses = steps[step];
    const ExactSum* const its = &sums[step * of_a_step];
    const auto mean = [&](size_t sum, int64_t count) { return mean_of(its[sum].value(), count); };
    step_losses.targets = counts.empty() ? static_cast<int64_t>(its[pipeline::target_sum].value())
                                         : counts[step].targets;
    step_losses.loss = mean(pipeline::loss_sum, step_losses.targets);
    step_losses.correct = mean(pipeline::correct_sum, step_losses.targets);
    if (counts.empty()) continue;
    for (size_t i = 0; i < stage_.named_losses().size(); ++i) {
      step_losses.losses[stage_.named_losses()[i].second] +=
          mean(pipeline::first_named_sum + i, counts[step].samples);
    }
  }
  return steps;
}

PipelineReport StepGradients::report() {
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
