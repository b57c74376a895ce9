// The last layer of a language model and its loss, over ranks that each have some of the vocabulary
// (Shoeybi et al.: Megatron-LM, 2019, section 3): of a token three numbers travel, never its
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
    Tensor logits;  // this rank's, of all rows; empty where they are computed in chunks
    Tensor statistics;
  };

  // `linear` is cut by its outputs, the `vocabulary`. With a chunk the logits of so many rows are
  // there at once, and backward computes them anew (where its weights' work is put off, it keeps
  // their gradients for that); 0: all.
  OutputLayer(const MeshPlace& place, Linear linear, int64_t vocabulary, int64_t chunk);

  // Sets pass.loss, if the micro-batch has targets, and returns this rank's logits (in chunks:
  // none); else the logits of the whole vocabulary. Input: all rows.
  Tensor forward(Pass& pass, ConstTensor input, Saved& saved) const;
  // The input's gradient: a part of a sum over the tensor ranks, of type_of_parts(). `saved` stays
  // until the weights' work is done.
  Tensor backward(Pass& pass, Saved& saved, RowsInTurn* turns = nullptr) const;

 private:
  // A rank sums its part of the vocabulary in so many slices, each by itself.
  int parts(const Pass& pass) const { return std::max(1, pass.slices / place_.size(Axis::tensor)); }
  void sums_of(const Pass& pass, ConstTensor logits, std::span<const int32_t> targets, Tensor sums,
               int64_t row) const;
  // Logits' gradients of rows from `row` on, in their logits' place.
  void start_backward(Pass& pass, const Saved& saved, int64_t row, Tensor logits) const;
  template <typename Body>
  void for_each_chunk(Pass& pass, const Saved& saved, const Body& body) const;

  MeshPlace place_;
  Linear linear_;
  int64_t vocabulary_;
  int64_t chunk_;
};

}  // namespace tutti::training
