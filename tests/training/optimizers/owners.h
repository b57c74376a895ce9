// Trains parameters on simulated owners, which are threads of this process.
#pragma once

#include <barrier>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "training/core/layout.h"
#include "training/optimizers/optimizer.h"

namespace tutti::training {

// Sums numbers over threads. A call returns after all owners have made it.
class ThreadReducers {
 public:
  explicit ThreadReducers(int owners);
  NormReducer& of(int owner) { return *reducers_[static_cast<size_t>(owner)]; }

 private:
  class Reducer;
  std::barrier<> barrier_;
  std::vector<std::span<int64_t>> inputs_;
  std::vector<std::unique_ptr<NormReducer>> reducers_;
};

// Runs `body` for each owner in a separate thread.
void run_owners(int owners, const std::function<void(int owner, NormReducer&)>& body);

// Describes the training of a model; the division into owners is given separately.
struct Training {
  std::vector<ParameterSpec> specs;
  std::function<std::unique_ptr<Optimizer>()> make_optimizer;
  int steps = 3;
  DType gradients = DType::f32;
  bool masters = true;
  DType values = DType::f32;  // type of the model's copy of the values; f32 with masters: no copy
  bool stochastic_rounding = false;
};

// Returns the bits of all masters, values and optimizer states at the end. Their order (by
// parameter, then element) does not depend on the layout.
std::vector<uint32_t> train(const Training& training, const LayoutOptions& layout);

// Initial values and gradients of the trained model: synthetic numbers of different magnitudes.
float example_value(const ParameterSpec& spec, int64_t element);
float example_gradient(const ParameterSpec& spec, int64_t element, int64_t step);

// Matrices and vectors of odd sizes, some of them smaller than a block.
std::vector<ParameterSpec> example_specs();

}  // namespace tutti::training
