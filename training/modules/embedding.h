// One vector for each token; its weight may serve as the output layer's too (Press, Wolf 2017).
#pragma once

#include <span>
#include <string>

#include "training/core/parameters.h"
#include "training/core/pass.h"

namespace tutti::training {

class Embedding {
 public:
  struct Saved {
    std::span<const int32_t> indices;
    ConstTensor output_gradient;
  };

  // The parameter NAME.weight: rows x width, normal with the given deviation.
  Embedding(ParameterTable& table, const std::string& name, int64_t rows, int64_t width,
            double deviation);

  const Parameter* weight() const { return weight_; }
  // output: one row for each index. Throws Error(invalid_argument) for an index out of range.
  void forward(std::span<const int32_t> indices, Tensor output, Saved& saved) const;
  // Gradients of a repeated index are added up in its rows' order in float (f64: double).
  void backward_weight(Pass& pass, const Saved& saved) const;

 private:
  int64_t rows_;
  int64_t width_;
  const Parameter* weight_;
};

}  // namespace tutti::training
