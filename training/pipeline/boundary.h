// Sends tensors between the stages of a pipeline.
//
// If each stage has `t` ranks with the same tensor (tensor parallelism), each sends one t-th of it
// to its counterpart, and the receivers gather the whole tensor among themselves. The tensor then
// crosses between nodes once, over all of a node's links, instead of t times.
//
//   stage 0, t = 2              stage 1
//     |a b|          --a-->     |a .| -+
//                                      +- all_gather inside the stage: |a b| on both
//     |a b|          --b-->     |. b| -+
//
// With sequence parallelism each rank has some of the rows. It sends its rows to the rank with the
// same index in the other stage. That rank needs only these rows, so nothing is gathered.
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
  // Creates the boundary. `stages`: one rank of each stage, in the order of stages. `tensor_ranks`:
  // the tensor-parallel ranks of this stage, in the same order on every stage. `layout`: layout of
  // the sent tensors over the tensor-parallel ranks, replicated or sharded by rows.
  Boundary(Communicator stages, Communicator tensor_ranks, const ActivationLayout& layout = {});

  // A tensor in flight. The Boundary must outlive the transfer, and only the thread that uses the
  // Boundary may use the transfer.
  class Transfer {
   public:
    Transfer() = default;
    // Returns true if this rank's own message has completed. Receivers must still call wait().
    bool test() { return link_.test(); }
    // Blocks until the received tensor is complete, or the sent tensor may be overwritten. The wait
    // for a received tensor is collective among the stage's tensor-parallel ranks, which gather it.
    void wait();
    // Blocks until no thread uses the memory of this rank's own message, after an abort.
    void wait_for_abort();

   private:
    friend class Boundary;
    Boundary* boundary_ = nullptr;
    Tensor received_;
    Work link_;
  };

  // Start to send `tensor` to a stage, or to receive `tensor` from a stage. `tensor`: this rank's
  // rows if the layout shards rows, otherwise the whole tensor; it must be contiguous. The caller
  // owns its memory, which must stay valid until wait() has returned.
  Transfer send(ConstTensor tensor, int stage);
  Transfer receive(Tensor tensor, int stage);

  Communicator& stages() { return stages_; }
  // Returns the bytes that this rank has sent to other stages.
  int64_t bytes_sent() const { return bytes_sent_; }

 private:
  // Returns the range of elements that a tensor-parallel rank sends: an even share of a replicated
  // tensor, otherwise all elements that the rank has.
  Share part(int64_t elements, int rank) const;
  void gather(Tensor tensor);

  Communicator stages_;
  Communicator tensor_ranks_;
  bool replicated_;
  int64_t bytes_sent_ = 0;
};

}  // namespace tutti::training::pipeline
