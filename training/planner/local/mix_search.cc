#include "training/planner/local/mix_search.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/processors.h"
#include "base/text.h"
#include "training/models/registry.h"
#include "training/parallel/mesh.h"
#include "training/planner/local/local_step.h"
#include "training/planner/local/unit_profiles.h"
#include "training/setup/mix_setting.h"
#include "training/setup/settle.h"

namespace tutti::training::planner {

namespace {

constexpr uint64_t kEnoughExamples = uint64_t{1} << 40;
constexpr int kRunsOfALayer = 9;  // the median counts

// Layers that are divided by turns, in two ways; but those with fewer outputs than ranks, which are
// batch-parallel.
Mix alternating(const std::vector<int64_t>& outputs, int ranks, LayerSplit first,
                LayerSplit second) {
  Mix mix;
  for (size_t layer = 0; layer < outputs.size(); ++layer) {
    const LayerSplit split = layer % 2 == 0 ? first : second;
    mix.push_back(outputs[layer] < ranks ? LayerSplit::batch : split);
  }
  return mix;
}

void check_can_mix(const RunOptions& run) {
  if (!takes_mix(run)) {
    throw Error(ErrorCode::unsupported,
                cat("the layers of a model ", kind_of(run.model).name, " are not mixed"),
                {.where = "--mix", .remedy = "leave it out, or take perceptron"});
  }
  if (run.mesh.tensor > 1) return;
  throw Error(ErrorCode::unsupported, "one tensor rank has nothing to mix",
              {.where = "--mix", .remedy = "give --tp a number of ranks above 1"});
}

}  // namespace

RunOptions with_mix(const RunOptions& run, const Mix& mix) {
  RunOptions changed = run;
  changed.mix = to_text(mix);
  set_member(changed.given, "parallel.mix", Json(changed.mix));
  return changed;
}

MixCosts measured_mix_costs(const RunOptions& run, int ranks) {
  check_can_mix(run);
  HostPrices prices(usable_processors());
  const UnitProfiles profiles(ranks, prices.processors(), run.threads);
  std::vector<int64_t> outputs;
  const std::unique_ptr<Model> whole = make_model(run.model);
  for (const auto& unit : whole->units()) outputs.push_back(unit->output_shape().cols);
  const size_t layers = outputs.size();
  MixCosts costs(layers);
  // Each layer is in these four divided in each way after each way.
  for (const LayerSplit even : {LayerSplit::batch, LayerSplit::model}) {
    for (const LayerSplit odd : {LayerSplit::batch, LayerSplit::model}) {
      const Mix mix = alternating(outputs, run.mesh.tensor, even, odd);
      RunOptions settled = with_mix(run, mix);
      settle(settled, ranks, kEnoughExamples);
      const MeshPlace place = mesh_place(settled.mesh, ranks);
      const auto samples = static_cast<int64_t>(settled.training.micro_batch);
      const std::vector<double> seconds =
          unit_seconds(settled, place, profiles.measured(settled, place, samples, kRunsOfALayer),
                       profiles.at_once(), prices);
      for (size_t layer = 0; layer < layers; ++layer) {
        const LayerSplit before = layer > 0 ? mix[layer - 1] : odd;
        costs.at(layer, before, mix[layer]) = seconds[layer];
      }
    }
  }
  // Nothing is before the first: both measurements are of one thing.
  for (const LayerSplit own : {LayerSplit::batch, LayerSplit::model}) {
    double& after_batch = costs.at(0, LayerSplit::batch, own);
    double& after_model = costs.at(0, LayerSplit::model, own);
    after_batch = after_model = std::min(after_batch, after_model);
  }
  return costs;
}

}  // namespace tutti::training::planner
