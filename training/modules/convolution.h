// Convolution of images (kernels/image.h: NHWC) by square windows.
#pragma once

#include <string>

#include "training/core/parameters.h"
#include "training/core/pass.h"
#include "training/kernels/convolution.h"

namespace tutti::training {

struct ConvolutionOptions {
  int64_t outputs = 0;  // channels
  int64_t kernel = 3;   // the window's height and width
  int64_t stride = 1;
  int64_t padding = 0;
  bool bias = false;  // a batch normalization behind it has its own
};

class Convolution {
 public:
  struct Saved {
    ConstTensor input;
    ConstTensor output_gradient;
  };

  // NAME.weight, outputs x inputs x kernel x kernel, normal with variance 2 / (inputs * kernel^2)
  // (He et al.: Delving deep into rectifiers, 2015), and NAME.bias, 0. Throws
  // Error(invalid_argument) for windows that do not fit.
  Convolution(ParameterTable& table, const std::string& name, const ImageShape& input,
              const ConvolutionOptions& options);

  ImageShape output() const { return shape_.output(); }
  // Multiplications (each with an addition) for one image's forward.
  double multiplications() const;

  Tensor forward(Pass& pass, ConstTensor input, Saved& saved) const;
  Tensor backward_input(Pass& pass, ConstTensor output_gradient, Saved& saved) const;
  void backward_weight(Pass& pass, const Saved& saved) const;
  // Both; the weights now or later, as the pass says. `saved` stays where it is until then.
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const;
  // Without dLoss/dInput: for a model's first layer.
  void backward_first(Pass& pass, ConstTensor output_gradient, Saved& saved) const;

 private:
  ConvolutionShape shape_;
  const Parameter* weight_;
  const Parameter* bias_ = nullptr;
};

}  // namespace tutti::training
