// Fully connected layers on images (Rosenblatt 1958; LeCun et al. 1998). Over tensor-parallel ranks
// each layer is batch- or model-parallel (mix.h).
//
//   images -> [Linear -> ReLU] x widths -> [Linear -> loss]
#pragma once

#include <cstdint>
#include <vector>

#include "training/models/mixed_network.h"
#include "training/models/registry.h"

namespace tutti::training {

struct PerceptronConfig {
  int64_t channels = 1;  // channels of the images
  int64_t height = 28;
  int64_t width = 28;
  int64_t classes = 10;
  std::vector<int64_t> widths = {512, 256};  // outputs of the hidden layers
  ComputeOptions compute = {};

  int64_t inputs() const { return channels * height * width; }
};

class Perceptron : public MixedNetwork {
 public:
  // Creates the part of the rank at `place`. Throws as MixedNetwork does.
  explicit Perceptron(const PerceptronConfig& config, const MeshPlace& place = {});

  Json configuration() const override;

 private:
  PerceptronConfig config_;
};

ModelKind perceptron_kind();

}  // namespace tutti::training
