// U-Net, which says of each pixel of an image what class it is of (Ronneberger, Fischer, Brox:
// Convolutional networks for biomedical image segmentation, 2015), with batch normalizations, and
// padding that keeps the image's size.
//
//   images -> [enc0] ------------- y0 ------------> [dec0] -> [head: 1x1 conv, loss of each pixel]
//                | halved                             ^
//              [enc1] ------- y1 ------> [dec1] ------+ doubled
//                | halved                  ^
//              [bottom] -------------------+ doubled
//
// Each unit but the head is two times conv 3x3, bn, relu; between two there is one tensor, in which
// what the decoder will need of the encoder travels along:
//
//   enc0 -> [x1 | y0] -> enc1 -> [x2 | y1 | y0] -> bottom -> [z | y1 | y0] -> dec1 -> [z | y0] ->
//   ...
#pragma once

#include <cstdint>
#include <vector>

#include "training/core/model.h"
#include "training/models/registry.h"
#include "training/modules/image_grid.h"

namespace tutti::training {

struct UNetConfig {
  int64_t channels = 1;  // of the images
  int64_t height = 64;
  int64_t width = 64;
  int64_t classes = 4;
  std::vector<int64_t> widths = {16, 32, 64};  // of the encoders, the last one: of the bottom
  bool sync_batch_norm = false;                // batch statistics are those of all ranks (SyncBN)
};

class UNet : public Model {
 public:
  // For a rank of a mesh, over which images are cut along the spatial axis, and units into stages.
  // With a reducer, which outlives the model, batch statistics are those of all its ranks: of
  // images that are cut at least those along the spatial axis. Throws Error(invalid_argument) for
  // sizes that make no sense.
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
  double multiplications_ = 0;  // of one image's forward
  std::vector<const TiledWindows*> windows_;
  std::vector<NamedBuffer> buffers_;
};

ModelKind unet_kind();

}  // namespace tutti::training
