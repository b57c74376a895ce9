// The output layer of a language model and its loss, with the vocabulary sharded over ranks
// (Shoeybi et al.: Megatron-LM, 2019, section 3): ranks exchange three numbers per token, never its
// logits.
//
//   rank 0   x W_0^T -> largest, sum of exponentials, target's logit -+
//                                                                     +-> loss, on both
//   rank 1   x W_1^T -> largest, sum of exponentials, target's logit -+
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "training/core/parameters.h"
#include "training/core/pass.h"
#include "training/modules/linear.h"

namespace tutti::training {

class OutputLayer {
 public:
  struct Saved {
    ConstTensor input;
    Linear::Saved linear;
    Tensor logits;  // logits on this rank, for all rows; empty if computed in chunks
    Tensor statistics;
  };

  // Creates the layer. `linear` has `vocabulary` outputs and is sharded by outputs. If `chunk` is
  // not 0, only the logits of `chunk` rows are in memory at once, and backward recomputes the
  // logits. If backward_weight is deferred, the gradients of all logits are kept until it runs.
  OutputLayer(const MeshPlace& place, Linear linear, int64_t vocabulary, int64_t chunk);

  // Sets pass.loss and returns this rank's logits (an empty tensor if they are computed in chunks)
  // if the micro-batch has targets. Otherwise returns the logits of the whole vocabulary. `input`
  // has all rows.
  Tensor forward(Pass& pass, ConstTensor input, Saved& saved) const;
  // Returns the input's gradient: a term of a sum over the tensor-parallel ranks, of
  // type_of_parts(). `saved` must keep its address until the weights' gradients are computed.
  Tensor backward(Pass& pass, Saved& saved, RowsInTurn* turns = nullptr) const;

 private:
  // Returns the number of slices of the vocabulary that this rank sums separately.
  int parts(const Pass& pass) const { return std::max(1, pass.slices / place_.size(Axis::tensor)); }
  void sums_of(const Pass& pass, ConstTensor logits, std::span<const int32_t> targets, Tensor sums,
               int64_t row) const;
  // Overwrites `logits`, which has the rows from index `row` on, by their gradients.
  void start_backward(Pass& pass, const Saved& saved, int64_t row, Tensor logits) const;
  template <typename Body>
  void for_each_chunk(Pass& pass, const Saved& saved, const Body& body) const;

  MeshPlace place_;
  Linear linear_;
  int64_t vocabulary_;
  int64_t chunk_;
};

}  // namespace tutti::training
