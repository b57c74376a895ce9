// AdamW as defined in the paper, in double. Source: Loshchilov, Hutter: Decoupled weight decay
// regularization, 2019.
#pragma once

#include <cmath>
#include <vector>

#include "tests/training/support/bound_parameters.h"

namespace tutti::training::testing {

struct PlainAdamWOptions {
  double rate = 1e-2;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double decay = 0;  // weight decay, applied only to parameters with decay
};

class PlainAdamW {
 public:
  // `table` and `parameters` must outlive this object.
  PlainAdamW(const ParameterTable& table, const BoundParameters& parameters,
             const PlainAdamWOptions& options)
      : table_(table),
        parameters_(parameters),
        options_(options),
        moments_(static_cast<size_t>(parameters.size())) {}

  void step() {
    ++step_;
    for (int i = 0; i < parameters_.size(); ++i) update(i);
  }

 private:
  struct Moments {
    std::vector<double> first, second;
  };

  void update(int index) {
    const auto& [rate, beta1, beta2, epsilon, decay] = options_;
    const std::vector<double> gradient = doubles(parameters_.gradient(index));
    std::vector<double> value = doubles(parameters_.value(index));
    auto& [first, second] = moments_[static_cast<size_t>(index)];
    first.resize(value.size());
    second.resize(value.size());
    const bool decays = table_.specs()[static_cast<size_t>(index)].decays;
    for (size_t i = 0; i < value.size(); ++i) {
      first[i] = beta1 * first[i] + (1 - beta1) * gradient[i];
      second[i] = beta2 * second[i] + (1 - beta2) * gradient[i] * gradient[i];
      const double mean = first[i] / (1 - std::pow(beta1, step_));
      const double square = second[i] / (1 - std::pow(beta2, step_));
      value[i] -= rate * (decays ? decay : 0) * value[i];
      value[i] -= rate * mean / (std::sqrt(square) + epsilon);
    }
    assign(parameters_.value(index), value);
  }

  const ParameterTable& table_;
  const BoundParameters& parameters_;
  PlainAdamWOptions options_;
  std::vector<Moments> moments_;
  int step_ = 0;
};

}  // namespace tutti::training::testing
