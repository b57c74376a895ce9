// Residual networks for small images (He et al.: Deep residual learning for image recognition,
// 2016, section 4.2).
//
//   images -> [stem: conv 3x3, bn, relu] -> [layer1.0] ... [layerN.n]
//          -> [head: mean of each channel, linear, loss]
//   block:  relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x))
//
// In every stage but the first, the first block halves height and width. In a block that changes
// the shape, the shortcut is a 1x1 convolution with batch normalization; in all other blocks the
// shortcut is x itself. Parameters and buffers have the same names as in torchvision's ResNets.
#pragma once

#include <cstdint>
#include <vector>

#include "training/core/model.h"
#include "training/models/registry.h"
#include "training/modules/batch_norm.h"
#include "training/modules/image_grid.h"

namespace tutti::training {

struct ResNetConfig {
  int64_t channels = 1;  // channels of the images
  int64_t height = 28;
  int64_t width = 28;
  int64_t classes = 10;
  std::vector<int64_t> blocks = {1, 1, 1};  // number of blocks, by stage
  std::vector<int64_t> widths = {16, 32, 64};
  // True: the last gain of each block starts at 0, so that each block starts as the identity (Goyal
  // et al.: Accurate, large minibatch SGD, 2017, section 5.1).
  bool zero_last_gain = true;
  bool sync_batch_norm = false;  // true: batch statistics are over all ranks (SyncBN)
};

class ResNet : public Model {
 public:
  // Creates the part of the rank at `place`. Images may be divided along the spatial axis, and
  // units into stages. With a reducer, which must outlive the model, batch statistics are over the
  // reducer's ranks; if images are divided, these must include the ranks along the spatial axis.
  // Throws Error(invalid_argument) for invalid sizes.
  explicit ResNet(const ResNetConfig& config, StatisticsReducer* reducer = nullptr,
                  const MeshPlace& place = {});

  const ResNetConfig& config() const { return config_; }
  std::vector<NamedBuffer> buffers() override;
  double flops_per_sample() const override { return 6 * multiplications_; }
  Json configuration() const override;
  int64_t targets_per_sample() const override { return 1; }
  bool takes_tiles() const override { return true; }
  // Returns the number of counted targets on the first rank of the grid that shares the images, and
  // 0 on its other ranks.
  int64_t targets_in(const MicroBatch& batch) const override;
  int64_t message_bytes(const MicroBatch& batch, DType activations) const override {
    return bytes_of_halos(windows_, batch.samples, activations);
  }

 private:
  ResNetConfig config_;
  double multiplications_ = 0;  // multiply-adds of forward for one image
  std::vector<const TiledWindows*> windows_;
  std::vector<NamedBuffer> buffers_;
};

ModelKind resnet_kind();

}  // namespace tutti::training
