// Pooling over windows of images, channel by channel; padding pixels are absent.
//
// x: samples x input.size(), y: samples x output().size(), contiguous, in one floating-point type
// (image.h). Sums run in float (f64: double) and are rounded once.
#pragma once

#include <optional>

#include "training/core/tensor.h"
#include "training/kernels/image.h"

namespace tutti::training {

struct PoolingShape {
  ImageShape input;
  Window window;                        // of dilation 1
  std::optional<WindowTile> tile = {};  // none: all windows that fit into the image

  WindowTile windows() const { return tile ? *tile : WindowTile::all(input, window); }
  ImageShape output() const {
    const WindowTile all = windows();
    return {all.height, all.width, input.channels};
  }
};

// places: shaped like y, of u8: for each output the index in its window of the (first) largest
// value. Windows have at most 256 pixels. NaN counts as the largest.
void max_pool(const PoolingShape& shape, ConstTensor x, Tensor y, Tensor places);
void max_pool_backward(const PoolingShape& shape, ConstTensor dy, ConstTensor places, Tensor dx);

// The mean over all pixels of the window: absent pixels count as 0 (as in PyTorch).
void average_pool(const PoolingShape& shape, ConstTensor x, Tensor y);
void average_pool_backward(const PoolingShape& shape, ConstTensor dy, Tensor dx);

}  // namespace tutti::training
