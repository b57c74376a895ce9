// y = x W^T + b, with W as (outputs x inputs).
#pragma once

#include <string>

#include "training/core/parameters.h"
#include "training/core/pass.h"

namespace tutti::training {

struct LinearOptions {
  bool bias = true;
  double deviation = 0.02;  // of the weights at the start; the bias starts at 0
};

class Linear {
 public:
  struct Saved {
    ConstTensor input;
    ConstTensor output_gradient;
  };

  // Parameters NAME.weight and NAME.bias.
  Linear(ParameterTable& table, const std::string& name, int64_t inputs, int64_t outputs,
         const LinearOptions& options = {});
  // Without a bias, with somebody else's weight (tied embeddings).
  Linear(const Parameter* weight, int64_t inputs, int64_t outputs)
      : inputs_(inputs), outputs_(outputs), weight_(weight) {}

  int64_t outputs() const { return outputs_; }
  Tensor forward(Pass& pass, ConstTensor input, Saved& saved) const;
  // `output`: rows x outputs, the caller's.
  void forward(Pass& pass, ConstTensor input, Saved& saved, Tensor output) const;
  Tensor backward_input(Pass& pass, ConstTensor output_gradient, Saved& saved) const;
  void backward_weight(Pass& pass, const Saved& saved) const;
  // Both; the weights now or later, as the pass says. `saved` stays where it is until then.
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const;

 private:
  int64_t inputs_;
  int64_t outputs_;
  const Parameter* weight_;
  const Parameter* bias_ = nullptr;
};

}  // namespace tutti::training
