#include "tests/training/support/gradient_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text.h"

namespace tutti::training::testing {
namespace {

constexpr double kNoise = 1e-10;  // smaller differences of doubles are treated as 0

double dot(ConstTensor a, ConstTensor b) {
  const std::vector<double> left = doubles(a), right = doubles(b);
  EXPECT_EQ(left.size(), right.size());
  double sum = 0;
  for (size_t i = 0; i < left.size(); ++i) sum += left[i] * right[i];
  return sum;
}

// Returns a fourth-order difference: (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h.
double derivative(Tensor values, int64_t row, int64_t col, const std::function<double()>& loss) {
  constexpr double kStep = 1.0 / 4096;
  const double value = get(values, row, col);
  const auto at = [&](double offset) {
    set(values, row, col, value + offset);
    return loss();
  };
  const double result =
      (8 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) / (12 * kStep);
  set(values, row, col, value);
  return result;
}

}  // namespace

void expect_gradient(const std::string& what, Tensor values, ConstTensor gradient,
                     const std::function<double()>& loss, const GradientCheck& check) {
  ASSERT_EQ(values.rows, gradient.rows) << what;
  ASSERT_EQ(values.cols, gradient.cols) << what;
  const std::vector<double> found = doubles(gradient);
  std::vector<double> derivatives;
  double largest = 0;
  for (int64_t i = 0; i < values.size(); i += check.every) {
    derivatives.push_back(derivative(values, i / values.cols, i % values.cols, loss));
    largest = std::max(largest, std::abs(derivatives.back()));
  }
  for (size_t i = 0; i < derivatives.size(); ++i) {
    const auto element = static_cast<int64_t>(i) * check.every;
    ASSERT_NEAR(found[static_cast<size_t>(element)], derivatives[i],
                check.tolerance * largest + kNoise)
        << what << ", element " << element;
  }
}

void expect_gradients(const Differentiable& module, ParameterTable& table, TestPass& test,
                      Tensor input, const GradientCheck& check) {
  const BoundParameters parameters(table, DType::f64);
  Pass& pass = test.pass;
  HostTensor weights;
  const auto loss = [&] {
    const ArenaScope scope(pass.arena);
    const Tensor output = module.forward(pass, input);
    if (weights.view().empty()) weights = random_tensor(DType::f64, output.rows, output.cols, 77);
    return dot(weights, output);
  };
  const auto backward = [&] {
    const ArenaScope scope(pass.arena);
    module.forward(pass, input);
    return rounded_to(DType::f64, module.backward(pass, weights));
  };
  loss();
  const HostTensor input_gradient = backward();
  std::vector<HostTensor> once;
  for (int i = 0; i < parameters.size(); ++i) {
    once.push_back(rounded_to(DType::f64, parameters.gradient(i)));
  }
  if (!input.empty()) expect_gradient("input", input, input_gradient, loss, check);
  for (int i = 0; i < parameters.size(); ++i) {
    const std::string& name = table.specs()[static_cast<size_t>(i)].name;
    expect_gradient(name, parameters.value(i), once[static_cast<size_t>(i)], loss, check);
  }
  backward();
  for (int i = 0; i < parameters.size(); ++i) {
    const std::vector<double> twice = doubles(parameters.gradient(i));
    const std::vector<double> first = doubles(once[static_cast<size_t>(i)]);
    for (size_t k = 0; k < first.size(); ++k) {
      ASSERT_NEAR(twice[k], 2 * first[k], 1e-12 * (1 + std::abs(first[k])))
          << table.specs()[static_cast<size_t>(i)].name << " is not added to";
    }
  }
}

}  // namespace tutti::training::testing
