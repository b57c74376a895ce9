// Max and average pooling of images (kernels/image.h: NHWC), without parameters. Images may be
// divided over a grid of ranks (image_grid.h); activations then have only this rank's tile.
#pragma once

#include "training/core/pass.h"
#include "training/kernels/pooling.h"
#include "training/modules/tiled_convolution.h"

namespace tutti::training {

enum class PoolingKind { max, average };

class Pooling {
 public:
  struct Saved {
    Tensor places;  // max pooling: positions of the largest values
  };

  // Creates the pooling. `input`: shape of whole images. Throws Error(invalid_argument) for windows
  // that do not fit, for dilated ones, and for max windows of more than 256 pixels.
  Pooling(PoolingKind kind, const ImageShape& input, const Window& window,
          const Spatial& spatial = {});

  // Returns the shape of whole images after pooling.
  ImageShape output() const { return {height_, width_, windows_.input.channels}; }
  int64_t output_size() const { return windows_.outputs.shape(windows_.input.channels).size(); }
  const TiledWindows& windows() const { return windows_; }
  Tensor forward(Pass& pass, ConstTensor input, Saved& saved) const;
  Tensor backward(Pass& pass, ConstTensor output_gradient, const Saved& saved) const;

 private:
  // Returns this rank's windows over the pixels that they read.
  PoolingShape shape() const;
  // Returns the pixels that this rank's windows read, from its own tile and the halo.
  ConstTensor gathered(Pass& pass, ConstTensor own) const;
  // Returns the gradient of this rank's tile, given the gradient of the pixels that windows read.
  Tensor scattered(Pass& pass, ConstTensor needed) const;

  PoolingKind kind_;
  int64_t height_, width_;  // size of the whole output
  Spatial spatial_;
  TiledWindows windows_;
};

// Global average pooling: the mean of each channel over the image. If images are divided over a
// grid, each rank computes its term of the sum.
class GlobalAverage {
 public:
  explicit GlobalAverage(const ImageShape& input, const ImageGrid& grid = {});

  // Returns the means, samples x channels.
  Tensor forward(Pass& pass, ConstTensor input) const;
  // Returns the input's gradient. `output_gradient` is the gradient of the sum over all ranks.
  Tensor backward(Pass& pass, ConstTensor output_gradient) const;

 private:
  PoolingShape shape_;
};

}  // namespace tutti::training
