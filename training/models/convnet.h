// Convolutions followed by fully connected layers, on images (LeCun et al.: Gradient-based learning
// applied to document recognition, 1998; without pooling: Springenberg et al.: Striving for
// simplicity, 2015). Over tensor-parallel ranks each layer is batch- or model-parallel, and
// convolutions may be domain-parallel (mix.h).
//
//   images -> [Convolution -> ReLU] x filters -> [Linear -> ReLU] x widths -> [Linear -> loss]
#pragma once

#include <cstdint>
#include <vector>

#include "training/models/mixed_network.h"
#include "training/models/registry.h"

namespace tutti::training {

struct ConvnetConfig {
  int64_t channels = 1;  // channels of the images
  int64_t height = 28;
  int64_t width = 28;
  int64_t classes = 10;
  std::vector<int64_t> filters = {16, 32};  // channels of each convolution
  std::vector<int64_t> strides = {};        // stride of each convolution; empty: 2 for each
  int64_t kernel = 3;  // height and width of windows; images are padded by kernel / 2
  std::vector<int64_t> widths = {128};  // outputs of the hidden fully connected layers
  ComputeOptions compute = {};
};

class Convnet : public MixedNetwork {
 public:
  // Creates the part of the rank at `place`. Throws as MixedNetwork does, and
  // Error(invalid_argument) if there are no filters, or neither one stride per filter nor none.
  explicit Convnet(const ConvnetConfig& config, const MeshPlace& place = {});

  Json configuration() const override;

 private:
  ConvnetConfig config_;
};

ModelKind convnet_kind();

}  // namespace tutti::training
