// Costs of all mixes of a network's layers (models/mix.h), and the cheapest mix. The cheapest mix
// is the shortest path in a graph whose nodes are the divisions of each layer.
//
//   batch    layer 0 ------ layer 1 ------ layer 2
//                   \ \  / /       \    /
//   model    layer 0 ------ layer 1 ------ layer 2        each with each
//                   / /  \ \       /
//   domain   layer 0 ------ layer 1                       convolutions only
//
// The length of an edge is the cost of a layer's computation, gradient sums and update, and of the
// conversions from the layout of the previous layer. The search visits at most 9 edges per layer,
// while there are up to 3^layers mixes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "training/models/mix.h"

namespace tutti::training::planner {

// Seconds of a step, by layer, for each division of the previous layer and of the layer itself. An
// entry that is not set is infinite, because the layer does not support the division. The first
// layer's costs must not depend on the previous division.
class MixCosts {
 public:
  explicit MixCosts(size_t layers);

  size_t layers() const { return layers_.size(); }
  double& at(size_t layer, LayerSplit before, LayerSplit own) {
    return layers_[layer][static_cast<size_t>(before)][static_cast<size_t>(own)];
  }
  double at(size_t layer, LayerSplit before, LayerSplit own) const {
    return layers_[layer][static_cast<size_t>(before)][static_cast<size_t>(own)];
  }
  // Returns the seconds of a mix, which must have layers() letters.
  double seconds_of(const Mix& mix) const;
  // Returns the cheapest mix. Among equally cheap ones, prefers the one that is batch-parallel, or
  // else model-parallel, in the earliest layer in which they differ.
  Mix cheapest() const;

 private:
  std::vector<std::array<std::array<double, kLayerSplits>, kLayerSplits>> layers_;
};

// Return the bytes that each rank sends in a step, by formulas that ignore biases. `widths`: number
// of values per sample before the first layer and after each layer, d_0 to d_L; `element`: bytes
// per value. With B samples and P ranks:
//
//   all layers model-parallel   sum over i >= 1 of (P-1)/P B d_i: outputs are gathered, and
//                               2 sum over i >= 2 of (P-1)/P B d_(i-1): gradients of inputs are
//                               summed
//   all layers batch-parallel   2 sum over i >= 1 of (P-1)/P d_(i-1) d_i: gradients of weights are
//                               summed
double model_parallel_bytes(std::span<const int64_t> widths, int64_t samples, int ranks,
                            int64_t element);
double batch_parallel_bytes(std::span<const int64_t> widths, int ranks, int64_t element);

}  // namespace tutti::training::planner
