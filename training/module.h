// Modules with an explicit forward and backward; there is no tape.
//
// A module keeps what its backward pass needs (a view of its input, or its own output) from one
// forward to the next: one micro-batch is under way at a time. Inputs must stay alive until the
// backward pass is done; outputs and input gradients live in the module and are valid until its
// next call of the same kind. Gradients of parameters are added to what is there.
//
// backward_input and backward_weight may be called apart, in either order: a pipeline schedule
// hands the input's gradient on first and fills bubbles with the weights' later.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "training/matrix.h"
#include "training/parameters.h"

namespace tutti::training {

// Whatever has parameters.
class Parametrized {
 public:
  virtual ~Parametrized() = default;

  // Names are local to the module: "weight".
  virtual std::vector<ParameterSpec> parameter_specs() const { return {}; }
  // Gives the module its parameters' memory, in the order of parameter_specs(). The memory outlives
  // the module's last call.
  virtual void bind(std::span<const Parameter> parameters) {}
  // Draws initial values; `stream` tells the modules of one model apart.
  virtual void initialize(uint64_t seed, uint64_t stream) {}
};

class Module : public Parametrized {
 public:
  // input: samples x input features.
  virtual ConstMatrix forward(ConstMatrix input) = 0;
  // output_gradient: dLoss/dOutput of the last forward. Returns dLoss/dInput.
  virtual ConstMatrix backward_input(ConstMatrix output_gradient) = 0;
  // Adds dLoss/dParameter to the parameters' gradients.
  virtual void backward_weight(ConstMatrix output_gradient) {}

  ConstMatrix backward(ConstMatrix output_gradient) {
    backward_weight(output_gradient);
    return backward_input(output_gradient);
  }
};

}  // namespace tutti::training
