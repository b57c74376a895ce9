// Layer normalization (Ba, Kiros, Hinton 2016) and RMSNorm (Zhang, Sennrich 2019) of each row.
#pragma once

#include <string>

#include "training/core/parameters.h"
#include "training/core/pass.h"

namespace tutti::training {

enum class NormKind { layer, rms };

class Norm {
 public:
  struct Saved {
    ConstTensor input;
    Tensor statistics;
    ConstTensor output_gradient;
  };

  // Adds parameters NAME.weight (initially 1) and, for layer normalization, NAME.bias (0).
  // `placement`: the parameters' placement, which differs from the default if a rank has only some
  // of the rows.
  Norm(ParameterTable& table, const std::string& name, int64_t width, NormKind kind,
       double epsilon = 1e-5, const Placement& placement = {});

  Tensor forward(Pass& pass, ConstTensor input, Saved& saved) const;
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const;
  Tensor backward_input(Pass& pass, ConstTensor output_gradient, Saved& saved) const;
  void backward_weight(Pass& pass, const Saved& saved) const;
  // Adds the gradients of some of the rows to `gain` and `bias`, which have the parameters' shapes.
  void add_gradients(Pass& pass, const Saved& saved, const Share& rows, Tensor gain,
                     Tensor bias) const;
  const Parameter& gain() const { return *gain_; }
  const Parameter* bias() const { return bias_; }  // null for RMSNorm

 private:
  int64_t width_;
  NormKind kind_;
  double epsilon_;
  const Parameter* gain_;
  const Parameter* bias_ = nullptr;
};

}  // namespace tutti::training
