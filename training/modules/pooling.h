// Max and average pooling of images (kernels/image.h: NHWC). No parameters.
#pragma once

#include "training/core/pass.h"
#include "training/kernels/pooling.h"

namespace tutti::training {

enum class PoolingKind { max, average };

class Pooling {
 public:
  struct Saved {
    Tensor places;  // max: of the largest values
  };

  // Throws Error(invalid_argument) for windows that do not fit, and for max windows of more than
  // 256 pixels.
  Pooling(PoolingKind kind, const ImageShape& input, const Window& window);
  // The mean of each channel over the whole image (global average pooling).
  static Pooling global_average(const ImageShape& input);

  ImageShape output() const { return shape_.output(); }
  Tensor forward(Pass& pass, ConstTensor input, Saved& saved) const;
  Tensor backward(Pass& pass, ConstTensor output_gradient, const Saved& saved) const;

 private:
  PoolingKind kind_;
  PoolingShape shape_;
};

}  // namespace tutti::training
