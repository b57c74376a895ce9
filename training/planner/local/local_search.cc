#include "training/planner/local/local_search.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/host_memory.h"
#include "base/processors.h"
#include "base/text.h"
#include "training/models/registry.h"
#include "training/parallel/mesh.h"
#include "training/pipeline/partition.h"
#include "training/pipeline/schedules.h"
#include "training/planner/local/local_step.h"
#include "training/planner/local/unit_profiles.h"
#include "training/setup/mix_setting.h"
#include "training/setup/settle.h"

namespace tutti::training::planner {

namespace {

constexpr uint64_t kManyExamples = uint64_t{1} << 40;

// Error of predicted steps on one machine (README.md), as a standard deviation of the logarithm.
constexpr double kError = 0.08;

Recompute recompute_named(const std::string& text) {
  return text == "full"        ? Recompute::full
         : text == "selective" ? Recompute::selective
                               : Recompute::none;
}

const std::string kInterleaved = "interleaved";

// Returns the free memory in bytes, or infinity if it is unknown.
double free_memory() {
  double free = std::numeric_limits<double>::infinity();
  const auto least = [&](uint64_t bytes) { free = std::min(free, static_cast<double>(bytes)); };
  if (const uint64_t bytes = available_host_memory(); bytes > 0) least(bytes);
  if (const auto bytes = free_container_memory()) least(*bytes);
  return free;
}

template <typename T>
void give(RunOptions& run, const char* key, T& setting, T value) {
  setting = value;
  set_member(run.given, key, Json(value));
}

class LocalSearch {
 public:
  explicit LocalSearch(const LocalQuestion& question)
      : question_(question),
        run_(question.run),
        prices_(usable_processors()),
        profiles_(question.ranks, prices_.processors(), question.run.threads) {
    if (question.ranks > kMostRanks) {
      throw Error(ErrorCode::unsupported,
                  cat(question.ranks, " ranks exceed the limit of ", kMostRanks,
                      " for planning on one host"),
                  {.remedy = "use --dp, --tp and --pp, or plan for a cluster"});
    }
    if (run_.micro_batches) {
      throw Error(
          ErrorCode::invalid_argument, "the batch depends on the layout",
          {.cause =
               "--micro-batches (--accumulate) is the number of micro-batches of each data rank",
           .remedy = "use --batch, the number of samples of a step"});
    }
    if (!run_.is_given("training.batch")) {
      run_.training.batch = kind_of(run_.model).traits.batch;
      set_member(run_.given, "training.batch", Json(run_.training.batch));
    }
    memory_ = question.memory > 0 ? question.memory : free_memory() / question.ranks;
    refuse_too_large();
  }

  Plans run() {
    for (const int tensor : axis("parallel.tp", run_.mesh.tensor)) {
      for (const int context : axis("parallel.cp", run_.mesh.context)) {
        for (const int stages : axis("parallel.pp", run_.mesh.pipeline)) {
          add_mesh({.tensor = tensor, .stages = stages, .context = context});
        }
      }
    }
    if (found_.empty()) {
      first_reason_ = cat(question_.ranks,
                          " ranks are not a multiple of the given dp x tp x cp x pp x spatial");
    }
    Plans plans;
    for (size_t i = 0; i < found_.size(); ++i) {
      if (question_.progress) question_.progress(i, found_.size());
      price(found_[i], plans);
    }
    if (plans.considered == 0) {
      throw Error(ErrorCode::invalid_argument,
                  cat("no layout on ", question_.ranks, " ranks is valid"),
                  {.cause = first_reason_,
                   .remedy = "leave an axis unspecified, or change --batch or --ranks"});
    }
    std::ranges::stable_sort(plans.layouts, is_better);
    return plans;
  }

 private:
  // Throws for a model that cannot fit. Called before units are measured, because that would take
  // long for such a model.
  void refuse_too_large() {
    double parameters = 0;
    const std::unique_ptr<Model> model = make_model(run_.model);
    has_experts_ = model->expert_load() != nullptr;
    for (const ParameterSpec& spec : model->parameters().specs()) {
      parameters += static_cast<double>(spec.local_count());
    }
    constexpr double kLeastBytes = 8;  // bytes per parameter with any optimizer: value and gradient
    const double least = kLeastBytes * parameters / question_.ranks;
    if (least <= memory_) return;
    throw Error(ErrorCode::unsupported, "no layout fits in memory",
                {.cause = cat(static_cast<uint64_t>(parameters), " parameters need more than ",
                              human_bytes(static_cast<uint64_t>(least)),
                              " per rank in any layout, but a rank has ",
                              human_bytes(static_cast<uint64_t>(memory_))),
                 .remedy = "use a smaller model or a larger host"});
  }

  std::vector<int> axis(const char* key, int given) const {
    if (run_.is_given(key)) return {given};
    std::vector<int> divisors;
    for (int ranks = 1; ranks <= question_.ranks; ++ranks) {
      if (question_.ranks % ranks == 0) divisors.push_back(ranks);
    }
    return divisors;
  }

  void add_mesh(Layout layout) {
    const int64_t cut =
        int64_t{layout.tensor} * layout.context * run_.mesh.spatial.ranks() * layout.stages;
    if (cut > question_.ranks || question_.ranks % cut != 0) return;
    layout.data = static_cast<int>(question_.ranks / cut);
    if (run_.is_given("parallel.dp") && run_.mesh.data != layout.data) return;
    std::vector<bool> rows = {false};
    if (run_.is_given("parallel.sp")) {
      rows = {run_.sequence_parallel};
    } else if (layout.tensor > 1 && !takes_mix(run_)) {
      rows.push_back(true);
    }
    const bool has_experts = has_experts_ || run_.is_given("parallel.ep");
    for (const int expert :
         has_experts ? axis("parallel.ep", run_.mesh.expert) : std::vector<int>{1}) {
      layout.expert = expert;
      for (const bool shares_rows : rows) {
        layout.sequence_parallel = shares_rows;
        add_sizes(layout);
      }
    }
  }

  // Returns the sizes to try; for models of images only the model's default, because batch norms
  // use the statistics of a micro-batch, so that its size changes the results.
  std::vector<int64_t> micro_batches(int data) const {
    const ModelTraits& traits = kind_of(run_.model).traits;
    if (run_.is_given("training.micro_batch")) {
      return {static_cast<int64_t>(run_.training.micro_batch)};
    }
    if (are_images(traits.inputs)) return {static_cast<int64_t>(traits.micro_batch)};
    std::vector<int64_t> sizes;
    const auto batch = static_cast<int64_t>(run_.training.batch);
    for (int64_t size = 1; size * data <= batch && size <= kMostMicroBatch; size *= 2) {
      if (batch % (size * data) == 0) sizes.push_back(size);
    }
    return sizes.empty() ? std::vector<int64_t>{1} : sizes;
  }

  void add_sizes(Layout layout) {
    const PipelineOptions& pipeline = run_.training.replica.pipeline;
    std::vector<int> chunks = {1};
    const bool is_scheduled = run_.is_given("parallel.schedule");
    if (run_.is_given("parallel.virtual")) {
      chunks = {pipeline.virtual_stages};
    } else if (layout.stages > 1 &&
               (!is_scheduled || pipeline::schedule_named(pipeline.schedule).has_virtual_stages)) {
      chunks.push_back(2);
    }
    std::vector<int> zeros = {run_.training.replica.storage.stage};
    const bool has_replicas = layout.data * layout.context * run_.mesh.spatial.ranks() > 1;
    if (!run_.is_given("parallel.zero")) {
      zeros = has_replicas ? std::vector{0, 1, 2, 3} : std::vector{0};
    }
    std::vector<Recompute> recomputes = {recompute_named(run_.recompute)};
    if (!run_.is_given("parallel.recompute")) recomputes = {Recompute::none, Recompute::full};
    for (const int64_t size : micro_batches(layout.data)) {
      layout.micro_batch = size;
      for (const int each : chunks) {
        layout.virtual_stages = each;
        for (const int zero : zeros) {
          layout.zero = zero;
          for (const Recompute recompute : recomputes) {
            layout.recompute = recompute;
            found_.push_back(layout);
          }
        }
      }
    }
  }

  // Returns the cut that minimizes the slowest chunk's time, by measured unit times.
  std::vector<int> cut_of(const Layout& layout, const pipeline::Profile& profile) const {
    if (layout.stages == 1 || run_.is_given("parallel.cut")) return {};
    std::vector<double> costs;
    for (const pipeline::Layer& unit : profile.layers)
      costs.push_back(unit.forward + unit.backward);
    return pipeline::balanced_cut(costs, layout.stages * layout.virtual_stages);
  }

  void price(Layout layout, Plans& plans) {
    try {
      RunOptions settled = with_layout(run_, layout);
      settle(settled, question_.ranks, kManyExamples);
      const MeshPlace place = mesh_place(settled.mesh, question_.ranks);
      const auto size = static_cast<int64_t>(settled.training.micro_batch);
      const pipeline::Profile& profile = profiles_.of(settled, place, size);
      layout.cut = cut_of(layout, profile);
      if (!layout.cut.empty()) {
        settled = with_layout(run_, layout);
        settle(settled, question_.ranks, kManyExamples);
      }
      const LocalStep step = local_step(settled, place, profile, profiles_.at_once(), prices_);
      PlannedLayout planned{.layout = layout, .time = step.time};
      planned.seconds = interval_around(step.time.total(), kError);
      planned.memory = *std::ranges::max_element(step.memory, {}, &MemoryUse::total);
      planned.by_stage = step.memory;
      planned.fits = planned.memory.total() <= memory_;
      ++plans.considered;
      if (planned.fits) ++plans.fitting;
      plans.layouts.push_back(std::move(planned));
    } catch (const Error& error) {
      const bool is_illegal =
          error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::unsupported;
      if (!is_illegal) throw;
      if (first_reason_.empty()) first_reason_ = error.what();
    }
  }

  static constexpr int64_t kMostMicroBatch = 32;
  static constexpr int kMostRanks = 256;

  const LocalQuestion& question_;
  RunOptions run_;
  HostPrices prices_;
  UnitProfiles profiles_;
  double memory_ = 0;
  bool has_experts_ = false;
  std::vector<Layout> found_;
  std::string first_reason_;
};

}  // namespace

RunOptions with_layout(const RunOptions& run, const Layout& l) {
  RunOptions changed = run;
  give(changed, "parallel.dp", changed.mesh.data, l.data);
  give(changed, "parallel.tp", changed.mesh.tensor, l.tensor);
  give(changed, "parallel.cp", changed.mesh.context, l.context);
  give(changed, "parallel.ep", changed.mesh.expert, l.expert);
  give(changed, "parallel.pp", changed.mesh.pipeline, l.stages);
  give(changed, "parallel.sp", changed.sequence_parallel, l.sequence_parallel);
  give(changed, "parallel.recompute", changed.recompute, name(l.recompute));
  TrainOptions& training = changed.training;
  give(changed, "training.micro_batch", training.micro_batch, static_cast<uint64_t>(l.micro_batch));
  give(changed, "parallel.zero", training.replica.storage.stage, l.zero);
  PipelineOptions& pipeline = training.replica.pipeline;
  give(changed, "parallel.virtual", pipeline.virtual_stages, l.virtual_stages);
  if (l.virtual_stages > 1) give(changed, "parallel.schedule", pipeline.schedule, kInterleaved);
  if (!l.cut.empty()) pipeline.cut = l.cut;
  return changed;
}

Plans search_locally(const LocalQuestion& question) { return LocalSearch(question).run(); }

}  // namespace tutti::training::planner
