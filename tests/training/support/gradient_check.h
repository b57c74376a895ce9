// Compares gradients with central differences in float64.
#pragma once

#include <functional>
#include <string>

#include "tests/training/support/bound_parameters.h"

namespace tutti::training::testing {

struct GradientCheck {
  double tolerance = 1e-7;  // relative to the largest derivative
  int64_t every = 1;        // checks every n-th element
};

// Expects `gradient` to be the derivative of loss() with respect to `values` (f64).
void expect_gradient(const std::string& what, Tensor values, ConstTensor gradient,
                     const std::function<double()>& loss, const GradientCheck& check = {});

// The module under test. forward: input -> output; backward: output gradient -> input gradient. It
// owns the tensors that it saves.
struct Differentiable {
  std::function<Tensor(Pass&, ConstTensor)> forward;
  std::function<Tensor(Pass&, ConstTensor)> backward;
};

// Checks the derivatives of sum(weights * output) with respect to the input and every parameter,
// and that backward adds to the gradients of parameters.
void expect_gradients(const Differentiable& module, ParameterTable& table, TestPass& test,
                      Tensor input, const GradientCheck& check = {});

}  // namespace tutti::training::testing
