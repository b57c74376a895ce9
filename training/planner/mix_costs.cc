#include "training/planner/mix_costs.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace tutti::training::planner {
namespace {

// Returns the bytes that each of `ranks` ranks sends in an all-gather or a reduce-scatter of a
// tensor of `bytes` bytes.
double sent(double bytes, int ranks) { return bytes * (ranks - 1) / ranks; }

}  // namespace

MixCosts::MixCosts(size_t layers) : layers_(layers) {
  for (auto& layer : layers_) {
    for (auto& after : layer) after.fill(std::numeric_limits<double>::infinity());
  }
}

double MixCosts::seconds_of(const Mix& mix) const {
  double seconds = 0;
  for (size_t layer = 0; layer < mix.size(); ++layer) {
    seconds += at(layer, mix[layer == 0 ? 0 : layer - 1], mix[layer]);
  }
  return seconds;
}

Mix MixCosts::cheapest() const {
  if (layers_.empty()) return {};
  // Dynamic programming from the last layer to the first. `after` has, for each division of a
  // layer, the least seconds of all later layers; `choices` has, for each division of the previous
  // layer, the division that attains the least seconds.
  std::vector<std::array<LayerSplit, kLayerSplits>> choices(layers());
  std::array<double, kLayerSplits> after = {};
  for (size_t layer = layers(); layer-- > 0;) {
    std::array<double, kLayerSplits> least = {};
    for (const LayerSplit before : kAllLayerSplits) {
      const auto seconds = [&](LayerSplit own) {
        return at(layer, before, own) + after[static_cast<size_t>(own)];
      };
      const LayerSplit best = *std::ranges::min_element(kAllLayerSplits, {}, seconds);
      choices[layer][static_cast<size_t>(before)] = best;
      least[static_cast<size_t>(before)] = seconds(best);
    }
    after = least;
  }
  Mix mix;
  for (size_t layer = 0; layer < layers(); ++layer) {
    const LayerSplit before = mix.empty() ? LayerSplit::batch : mix.back();
    mix.push_back(choices[layer][static_cast<size_t>(before)]);
  }
  return mix;
}

double model_parallel_bytes(std::span<const int64_t> widths, int64_t samples, int ranks,
                            int64_t element) {
  double values = 0;  // number of values per sample
  for (size_t layer = 1; layer < widths.size(); ++layer) {
    values += static_cast<double>(widths[layer]);
    if (layer >= 2) values += 2 * static_cast<double>(widths[layer - 1]);
  }
  return sent(values * static_cast<double>(samples * element), ranks);
}

double batch_parallel_bytes(std::span<const int64_t> widths, int ranks, int64_t element) {
  double weights = 0;
  for (size_t layer = 1; layer < widths.size(); ++layer) {
    weights += static_cast<double>(widths[layer - 1]) * static_cast<double>(widths[layer]);
  }
  return 2 * sent(weights * static_cast<double>(element), ranks);
}

}  // namespace tutti::training::planner
