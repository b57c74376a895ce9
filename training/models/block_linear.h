// Computes y = x W^T + b in deterministic mode, in blocks of samples x outputs. The slices of
// samples and of outputs (core/slices.h) are the same for any number of ranks, and each block is a
// separate product. The bits therefore do not depend on whether a rank has some of the samples,
// some of the outputs, or all.
//
//            outputs
//            +----+----+    dx of a slice of samples: a tree of sums over slices of outputs
//   samples  | 00 | 01 |    dW of a slice of outputs: a tree of sums over slices of samples
//            +----+----+
//            | 10 | 11 |    a rank with some of a sum's slices computes a branch of the tree
//            +----+----+
#pragma once

#include <cstdint>
#include <string>

#include "training/core/parameters.h"
#include "training/core/pass.h"
#include "training/modules/linear.h"

namespace tutti::training {

struct BlockLinearOptions {
  double deviation = 0.02;  // standard deviation of initial weights
  Placement placement = {};
  int slices = 1;            // number of slices of the samples, and of the outputs
  Share sample_slices = {};  // slices on this rank
  Share output_slices = {};
};

class BlockLinear {
 public:
  using Saved = Linear::Saved;

  // Adds parameters NAME.weight and NAME.bias, with the shapes of the whole layer.
  BlockLinear(ParameterTable& table, const std::string& name, int64_t inputs, int64_t outputs,
              const BlockLinearOptions& options);

  // Computes the output. `input` has this rank's samples of pass.batch, one row each.
  Tensor forward(Pass& pass, ConstTensor input, Saved& saved) const;
  // Returns this rank's branch of the sum for the input's gradient, of value_type().
  Tensor backward_input(Pass& pass, ConstTensor output_gradient) const;
  // This rank's branches of the sums for the gradients of its weights and bias, of value_type().
  // `weight` has one row of `inputs` values for each of the rank's outputs, `bias` one value.
  struct Branches {
    Tensor weight;
    Tensor bias;
  };
  Branches weight_branches(Pass& pass, const Saved& saved) const;
  // Adds complete sums to the gradients of this rank's parameters.
  void add_gradients(const Branches& sums) const;

 private:
  // Returns the range of this rank's rows (or columns) that form the slice with index `index` among
  // its own slices. `own`: the rank's own slices; `count`: number of rows (or columns) of all ranks
  // together; `slices`: number of slices of all ranks together.
  static Share block(const Share& own, int64_t index, int64_t count, int slices);
  Share samples(const Pass& pass, int64_t index) const {
    return block(options_.sample_slices, index, pass.batch->samples, options_.slices);
  }
  Share outputs(int64_t index) const {
    return block(options_.output_slices, index, outputs_, options_.slices);
  }

  BlockLinearOptions options_;
  int64_t inputs_;
  int64_t outputs_;  // number of outputs of the whole layer
  const Parameter* weight_;
  const Parameter* bias_;
};

}  // namespace tutti::training
