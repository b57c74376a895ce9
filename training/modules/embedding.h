// The embedding: one vector per token. The output layer may share its weight (Press, Wolf 2017). If
// the weight is sharded over the tensor axis, each rank has some of its rows, and the rank's output
// is a term of a sum.
#pragma once

#include <span>
#include <string>

#include "training/core/parameters.h"
#include "training/core/pass.h"
#include "training/kernels/part_of.h"

namespace tutti::training {

class Embedding {
 public:
  struct Saved {
    std::span<const int32_t> indices;
    ConstTensor output_gradient;
  };

  // Adds parameter NAME.weight: rows x width, normal with the given deviation. `is_cut`: shard it
  // over the tensor axis.
  Embedding(ParameterTable& table, const std::string& name, int64_t rows, int64_t width,
            double deviation, bool is_cut = false);

  const Parameter* weight() const { return weight_; }
  // Writes one row of `output` per index: 0 for a row that another rank has. Throws
  // Error(invalid_argument) for an index out of range.
  void forward(std::span<const int32_t> indices, Tensor output, Saved& saved) const;
  // Adds the weight's gradient. Gradients of a repeated index are summed in the order of rows, in
  // float or, for f64, in double.
  void backward_weight(Pass& pass, const Saved& saved) const;

 private:
  PartOf rows_;  // the rows that this rank has
  int64_t width_;
  const Parameter* weight_;
};

}  // namespace tutti::training
