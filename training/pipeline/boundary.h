// Tensors between the stages of a pipeline.
//
// Where every stage has `t` ranks with the same tensor (tensor parallelism), each sends one t-th of
// it to its counterpart, and the receivers gather the whole among themselves: what crosses between
// nodes is the tensor once, over all of a node's links, instead of t times.
//
//   stage 0, t = 2              stage 1
//     |a b|          --a-->     |a .| -+
//                                      +- all_gather inside the stage: |a b| on both
//     |a b|          --b-->     |. b| -+
//
// Where each has some of the rows (sequence parallelism), that is what it sends, and what its
// counterpart computes with: nothing is gathered.
//
// Narayanan et al.: Efficient large-scale language model training on GPU clusters using
// Megatron-LM, 2021, section 4.1 ("scatter/gather optimization").
#pragma once

#include <cstdint>

#include "collectives/communicator.h"
#include "training/core/activation_layout.h"
#include "training/core/placement.h"
#include "training/core/tensor.h"

namespace tutti::training::pipeline {

class Boundary {
 public:
  // One rank of each stage, in the order of stages; the tensor ranks of this stage, in the same
  // order on every stage; and how tensors lie on these: replicated or by rows.
  Boundary(Communicator stages, Communicator tensor_ranks, const ActivationLayout& layout = {});

  // A tensor on its way. It belongs to the thread of its Boundary, which outlives it.
  class Transfer {
   public:
    Transfer() = default;
    bool test() { return link_.test(); }
    // Returns when the tensor is there whole, or, sent, may be written again. Among the ranks of a
    // stage a collective call.
    void wait();

   private:
    friend class Boundary;
    Boundary* boundary_ = nullptr;
    Tensor received_;
    Work link_;
  };

  // Contiguous tensors, as this rank has them; the memory is the caller's, until wait() has
  // returned.
  Transfer send(ConstTensor tensor, int stage);
  Transfer receive(Tensor tensor, int stage);

  Communicator& stages() { return stages_; }
  // What this rank has sent to other stages.
  int64_t bytes_sent() const { return bytes_sent_; }

 private:
  // The elements that a tensor rank sends: what each has by itself is sent as a whole.
  Share part(int64_t elements, int rank) const;
  void gather(Tensor tensor);

  Communicator stages_;
  Communicator tensor_ranks_;
  bool replicated_;
  int64_t bytes_sent_ = 0;
};

}  // namespace tutti::training::pipeline
