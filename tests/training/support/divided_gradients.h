// Compares gradients, in float64: those of a model whose layers are divided over tensor ranks with
// those of the same model on one rank.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "training/core/model.h"

namespace tutti::training::testing {

// Images of noise. The target of the second image is ignored.
struct RandomImages {
  std::vector<float> features;
  std::vector<int32_t> targets;

  MicroBatch batch(int weight = 1) const {
    return {
        .samples = std::ssize(targets), .features = features, .targets = targets, .weight = weight};
  }
};
RandomImages random_images(int64_t size, int64_t classes, int64_t samples);

// Expects losses, gradients and predictions on `ranks` tensor ranks to equal those of the model on
// one rank, also after a micro-batch of weight 0.
void check_divided_gradients(int ranks,
                             const std::function<std::unique_ptr<Model>(const MeshPlace&)>& make,
                             const RandomImages& images, bool recomputes);

}  // namespace tutti::training::testing
