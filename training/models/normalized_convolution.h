// Functions and a module that image models share.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "training/core/model.h"
#include "training/modules/batch_norm.h"
#include "training/modules/convolution.h"
#include "training/parallel/halo_exchange.h"

namespace tutti::training {

// Returns the grid of ranks that divides images on this mesh.
inline Spatial spatial_of(const MeshPlace& place) {
  static const HaloExchange halos(Axis::spatial);
  return {ImageGrid::of(place), &halos};
}

// Appends the buffers of a unit to those of a model.
inline void append_buffers(std::vector<NamedBuffer>& all, std::vector<NamedBuffer> more, int unit) {
  for (NamedBuffer& buffer : more) {
    buffer.unit = unit;
    all.push_back(std::move(buffer));
  }
}

// A convolution without bias followed by batch normalization.
class NormalizedConvolution {
 public:
  struct Saved {
    Convolution::Saved convolution;
    BatchNorm::Saved norm;
  };

  NormalizedConvolution(ParameterTable& table, const std::string& convolution_name,
                        const std::string& norm_name, const ImageShape& input,
                        const ConvolutionOptions& options, const BatchNormOptions& norm)
      : convolution_(table, convolution_name, input, options),
        norm_(table, norm_name, options.outputs, norm) {}

  const Convolution& convolution() const { return convolution_; }
  std::vector<NamedBuffer> buffers() { return norm_.buffers(); }

  Tensor forward(Pass& pass, ConstTensor input, Saved& saved) {
    return norm_.forward(pass, convolution_.forward(pass, input, saved.convolution), saved.norm);
  }
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
    return convolution_.backward(pass, norm_.backward(pass, output_gradient, saved.norm),
                                 saved.convolution);
  }
  void backward_first(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
    convolution_.backward_first(pass, norm_.backward(pass, output_gradient, saved.norm),
                                saved.convolution);
  }

 private:
  Convolution convolution_;
  BatchNorm norm_;
};

}  // namespace tutti::training
