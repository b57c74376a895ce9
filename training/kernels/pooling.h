// Pooling over windows of images, channel by channel; padding pixels are absent.
//
// x: samples x input.size(), y: samples x output().size(), contiguous, of the same floating-point
// type (image.h). Sums are in float (f64: double) and rounded once.
#pragma once

#include <optional>

#include "training/core/tensor.h"
#include "training/kernels/image.h"

namespace tutti::training {

struct PoolingShape {
  ImageShape input;
  Window window;                        // must have dilation 1
  std::optional<WindowTile> tile = {};  // unset: all windows that fit into the image

  WindowTile windows() const { return tile ? *tile : WindowTile::all(input, window); }
  ImageShape output() const {
    const WindowTile all = windows();
    return {all.height, all.width, input.channels};
  }
};

// Writes the maximum of each window to y. places: u8, of the shape of y: for each output the index
// of the largest value in its window; of equal values, the first. Windows have at most 256 pixels.
// NaN counts as the largest value; of several NaNs, the last is chosen.
void max_pool(const PoolingShape& shape, ConstTensor x, Tensor y, Tensor places);
void max_pool_backward(const PoolingShape& shape, ConstTensor dy, ConstTensor places, Tensor dx);

// Writes the mean over all pixels of each window to y. Absent pixels count as 0 (as in PyTorch).
void average_pool(const PoolingShape& shape, ConstTensor x, Tensor y);
void average_pool_backward(const PoolingShape& shape, ConstTensor dy, Tensor dx);

}  // namespace tutti::training
