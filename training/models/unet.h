// U-Net, which classifies each pixel of an image (Ronneberger, Fischer, Brox: Convolutional
// networks for biomedical image segmentation, 2015), with batch normalization, and with padding
// that preserves the image's size.
//
//   images -> [enc0] ------------- y0 ------------> [dec0] -> [head: 1x1 conv, loss of each pixel]
//                | halved                             ^
//              [enc1] ------- y1 ------> [dec1] ------+ doubled
//                | halved                  ^
//              [bottom] -------------------+ doubled
//
// Each unit but the head applies conv 3x3, bn, relu twice. Units pass on one tensor, which also
// contains the encoder outputs that decoders will need:
//
//   enc0 -> [x1 | y0] -> enc1 -> [x2 | y1 | y0] -> bottom -> [z | y1 | y0] -> dec1 -> [z | y0] ...
#pragma once

#include <cstdint>
#include <vector>

#include "training/core/model.h"
#include "training/models/registry.h"
#include "training/modules/image_grid.h"

namespace tutti::training {

struct UNetConfig {
  int64_t channels = 1;  // channels of the images
  int64_t height = 64;
  int64_t width = 64;
  int64_t classes = 4;
  // channels of the encoders; the last number is for the bottom
  std::vector<int64_t> widths = {16, 32, 64};
  bool sync_batch_norm = false;  // true: batch statistics are over all ranks (SyncBN)
};

class UNet : public Model {
 public:
  // Creates the part of the rank at `place`. Images may be divided along the spatial axis, and
  // units into stages. With a reducer, which must outlive the model, batch statistics are over the
  // reducer's ranks; if images are divided, these must include the ranks along the spatial axis.
  // Throws Error(invalid_argument) for invalid sizes.
  explicit UNet(const UNetConfig& config, StatisticsReducer* reducer = nullptr,
                const MeshPlace& place = {});

  std::vector<NamedBuffer> buffers() override { return buffers_; }
  double flops_per_sample() const override { return 6 * multiplications_; }
  Json configuration() const override;
  int64_t targets_per_sample() const override { return config_.height * config_.width; }
  bool takes_tiles() const override { return true; }
  int64_t targets_in(const MicroBatch& batch) const override;
  int64_t message_bytes(const MicroBatch& batch, DType activations) const override {
    return bytes_of_halos(windows_, batch.samples, activations);
  }

 private:
  UNetConfig config_;
  double multiplications_ = 0;  // multiply-adds of forward for one image
  std::vector<const TiledWindows*> windows_;
  std::vector<NamedBuffer> buffers_;
};

ModelKind unet_kind();

}  // namespace tutti::training
