// Perceptrons and convolutional networks: sequences of layers, each of which is divided over the
// tensor-parallel ranks in its own way (mix.h): batch-parallel, model-parallel, or for convolutions
// domain-parallel.
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
  int64_t outputs = 0;  // number of outputs or, for a convolution, number of output channels
  int64_t kernel = 0;   // height and width of a convolution's window; 0: a fully connected layer
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
  // Creates the part of the rank at `place`. The last layer computes the logits of the classes; all
  // convolutions come first. Throws Error(invalid_argument) for invalid sizes, for a mix with a
  // wrong number of layers, for model-parallel layers with fewer outputs than tensor-parallel
  // ranks, and for domain-parallel layers that are not convolutions. In deterministic mode a
  // network without convolutions is computed in slices. A network with convolutions is not, so its
  // bits depend on the mix.
  MixedNetwork(const ImageShape& image, std::vector<NetworkLayer> layers,
               const ComputeOptions& compute, const MeshPlace& place);

 private:
  std::vector<NetworkLayer> layers_;
  int slices_ = 1;
  double multiplications_ = 0;  // multiply-adds of forward for one image
  std::vector<const TiledWindows*> windows_;
};

}  // namespace tutti::training
