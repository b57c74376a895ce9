// Simulated owners of a model's parameters: threads of this process that train it together.
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

// All-reduces among threads. A call returns when every owner has made it.
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

// A model's training, except for its layout.
struct Training {
  std::vector<ParameterSpec> specs;
  std::function<std::unique_ptr<Optimizer>()> make_optimizer;
  int steps = 3;
  DType gradients = DType::f32;
  bool masters = true;
  DType values = DType::f32;  // the model's copy; with masters f32 means that there is none
  bool stochastic_rounding = false;
};

// Returns the bits of all masters, values and states at the end, by parameter and element, for any
// layout.
std::vector<uint32_t> train(const Training& training, const LayoutOptions& layout);

// Initial values and gradients of the trained model: synthetic numbers of different magnitudes.
float example_value(const ParameterSpec& spec, int64_t element);
float example_gradient(const ParameterSpec& spec, int64_t element, int64_t step);

// Matrices and vectors of odd sizes, some of them smaller than a block.
std::vector<ParameterSpec> example_specs();

}  // namespace tutti::training
