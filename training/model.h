// A model is a list of units: what is gathered (ZeRO-3), checkpointed and placed on a pipeline
// stage as a whole. Between units goes one tensor: rows (samples, or samples x positions) x width.
//
//   batch -> [unit 0] -> tensor -> [unit 1] -> ... -> [last unit] -> loss
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "training/parameters.h"
#include "training/pass.h"

namespace tutti::training {

// What a unit hands to the next one, per sample.
struct OutputShape {
  int64_t rows = 1;
  int64_t cols = 0;
};

class Unit {
 public:
  virtual ~Unit() = default;
  virtual std::string name() const = 0;  // "h.3"
  virtual OutputShape output_shape() const = 0;
  // The first unit takes pass.batch and leaves `input` alone; the last one sets pass.loss_sum and
  // returns its logits.
  virtual Tensor forward(Pass& pass, ConstTensor input) = 0;
  // Takes dLoss/dOutput of this slot's last forward, returns dLoss/dInput (the first unit: an empty
  // tensor). The last unit leaves `output_gradient` alone. Gradients of parameters are added to,
  // at once or in pass.weight_work.
  virtual Tensor backward(Pass& pass, ConstTensor output_gradient) = 0;
  // Backward reads neither the parameters' values nor activations worth mentioning (a look-up):
  // nothing is recomputed or gathered for it.
  virtual bool backward_needs_nothing() const { return false; }
};

// State that training changes and gradients do not: running statistics.
struct NamedBuffer {
  std::string name;
  std::span<float> values;  // the model's memory
  int unit = 0;             // whose forward changes it
};

class Model {
 public:
  virtual ~Model() = default;

  ParameterTable& parameters() { return parameters_; }
  const std::vector<std::unique_ptr<Unit>>& units() const { return units_; }
  // Part of checkpoints; the addresses stay.
  virtual std::vector<NamedBuffer> buffers() { return {}; }
  // Floating-point operations of forward and backward for one sample, recomputation not counted
  // (matrix products and attention; Narayanan et al. 2021, appendix). As it is here: each matrix is
  // used once.
  virtual double flops_per_sample() const;
  // What of the model a checkpoint must agree with: its kind and sizes, one line. As it is here:
  // its units' names and how many parameters there are.
  virtual std::string description() const;
  // What else changes how it trains, and is no part of what a checkpoint holds, by name: dropout.
  virtual std::vector<std::pair<std::string, double>> training_settings() const { return {}; }
  // Losses per sample: the context for a language model that predicts at each position, the outputs
  // of a regression, else 1.
  virtual int64_t targets_per_sample() const { return 1; }

 protected:
  // Units are added in forward order; `Made` takes (ParameterTable&, arguments...).
  template <typename Made, typename... Arguments>
  void add_unit(Arguments&&... arguments) {
    parameters_.begin_unit(static_cast<int>(units_.size()));
    units_.push_back(std::make_unique<Made>(parameters_, std::forward<Arguments>(arguments)...));
  }

  ParameterTable parameters_;
  std::vector<std::unique_ptr<Unit>> units_;
};

}  // namespace tutti::training
