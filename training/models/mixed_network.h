// Layers one behind the other, each of which is batch-, model- or, of convolutions, domain-parallel
// over the tensor ranks (mix.h): perceptrons and convolutional networks.
//
//   images -> [Convolution -> ReLU] x c -> [Linear -> ReLU] x h -> [Linear -> loss]
#pragma once

#include <cstdint>
#include <vector>

#include "training/core/model.h"
#include "training/models/compute_options.h"
#include "training/modules/image_grid.h"

namespace tutti::training {

struct NetworkLayer {
  int64_t outputs = 0;  // of a convolution: channels
  int64_t kernel = 0;   // of a convolution: its windows' height and width; fully connected: 0
  int64_t stride = 1;

  bool is_convolution() const { return kernel > 0; }
};

class MixedNetwork : public Model {
 public:
  const std::vector<NetworkLayer>& layers() const { return layers_; }

  double flops_per_sample() const override { return 6 * multiplications_; }
  int64_t targets_per_sample() const override { return 1; }
  int slices() const override { return slices_; }
  int64_t message_bytes(const MicroBatch& batch, DType activations) const override {
    return bytes_of_halos(windows_, batch.samples, activations);
  }

 protected:
  // For a rank of a mesh. The last layer makes the classes' logits; all convolutions are in front.
  // Throws Error(invalid_argument) for sizes that make no sense, for a mix of another number of
  // layers, for model-parallel layers with fewer outputs than tensor ranks and for domain-parallel
  // ones that are no convolutions. In deterministic mode fully connected layers are computed in
  // slices, and convolutions, whose bits depend on the mix, are not.
  MixedNetwork(const ImageShape& image, std::vector<NetworkLayer> layers,
               const ComputeOptions& compute, const MeshPlace& place);

 private:
  std::vector<NetworkLayer> layers_;
  int slices_ = 1;
  double multiplications_ = 0;  // of one image's forward
  std::vector<const TiledWindows*> windows_;
};

}  // namespace tutti::training
