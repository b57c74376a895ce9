#include "training/planner/local/mix_search.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/processors.h"
#include "base/text.h"
#include "training/models/mixed_network.h"
#include "training/models/registry.h"
#include "training/parallel/mesh.h"
#include "training/planner/local/local_step.h"
#include "training/planner/local/unit_profiles.h"
#include "training/setup/mix_setting.h"
#include "training/setup/settle.h"

namespace tutti::training::planner {

namespace {

constexpr uint64_t kEnoughExamples = uint64_t{1} << 40;
constexpr int kRunsOfALayer = 9;  // number of runs; their median counts

// Returns the layers of a run's model.
std::vector<NetworkLayer> layers_of(const RunOptions& run) {
  const std::unique_ptr<Model> whole = make_model(run.model);
  return dynamic_cast<const MixedNetwork&>(*whole).layers();
}

bool can_be(LayerSplit split, const NetworkLayer& layer, int ranks) {
  if (split == LayerSplit::model) return layer.outputs >= ranks;
  return split == LayerSplit::batch || layer.is_convolution();
}

// Returns a mix that alternates between two divisions; a layer that does not support its division
// is batch-parallel.
Mix alternating(const std::vector<NetworkLayer>& layers, int ranks, LayerSplit first,
                LayerSplit second) {
  Mix mix;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const LayerSplit split = layer % 2 == 0 ? first : second;
    mix.push_back(can_be(split, layers[layer], ranks) ? split : LayerSplit::batch);
  }
  return mix;
}

void check_can_mix(const RunOptions& run) {
  if (!takes_mix(run)) {
    throw Error(ErrorCode::unsupported,
                cat("--mix does not support the model ", kind_of(run.model).name),
                {.where = "--mix", .remedy = "remove --mix, or use perceptron or convnet"});
  }
  if (run.mesh.tensor > 1) return;
  throw Error(ErrorCode::unsupported, "--mix has no effect with one tensor-parallel rank",
              {.where = "--mix", .remedy = "use --tp with more than 1 rank"});
}

// Returns the seconds of each layer on its busiest rank. Measures the last tensor-parallel rank,
// which has the largest share and, if images are cut into strips, also the rank before it, whose
// strip has neighbours on both sides.
std::vector<double> seconds_of(const RunOptions& settled, int ranks, const UnitProfiles& profiles,
                               HostPrices& prices) {
  const MeshPlace first = mesh_place(settled.mesh, ranks);
  const int tensor = settled.mesh.tensor;
  const auto samples = static_cast<int64_t>(settled.training.micro_batch);
  const bool has_strips = settled.mix.find('d') != std::string::npos;
  std::vector<double> most;
  for (int rank = has_strips && tensor > 2 ? tensor - 2 : tensor - 1; rank < tensor; ++rank) {
    const MeshPlace place = first.of_rank(rank);
    const std::vector<double> own =
        unit_seconds(settled, place, profiles.measured(settled, place, samples, kRunsOfALayer),
                     profiles.at_once(), prices);
    most.resize(own.size());
    std::ranges::transform(most, own, most.begin(),
                           [](double a, double b) { return std::max(a, b); });
  }
  return most;
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
  const std::vector<NetworkLayer> layers = layers_of(run);
  const bool has_images =
      std::ranges::any_of(layers, [](const NetworkLayer& layer) { return layer.is_convolution(); });
  const std::span<const LayerSplit> splits(kAllLayerSplits.data(), has_images ? 3 : 2);
  MixCosts costs(layers.size());
  // Together, these mixes contain each division of a layer after each division of the previous
  // layer.
  for (const LayerSplit even : splits) {
    for (const LayerSplit odd : splits) {
      const Mix mix = alternating(layers, run.mesh.tensor, even, odd);
      RunOptions settled = with_mix(run, mix);
      settle(settled, ranks, kEnoughExamples);
      const std::vector<double> seconds = seconds_of(settled, ranks, profiles, prices);
      for (size_t layer = 0; layer < layers.size(); ++layer) {
        const LayerSplit before = layer > 0 ? mix[layer - 1] : odd;
        costs.at(layer, before, mix[layer]) = seconds[layer];
      }
    }
  }
  // The first layer has no previous layer, so all its measurements are of the same work.
  for (const LayerSplit own : splits) {
    double least = costs.at(0, LayerSplit::batch, own);
    for (const LayerSplit before : splits) least = std::min(least, costs.at(0, before, own));
    for (const LayerSplit before : splits) costs.at(0, before, own) = least;
  }
  return costs;
}

}  // namespace tutti::training::planner
