// Interface for exchanging the pixels that windows at the edges of tiles need from other ranks of a
// grid (image_grid.h). The creator of a module provides the implementation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "training/core/pass.h"

namespace tutti::training {

// Exchanges the pixels of halos. Any number of passes may use one object at once.
class HaloMessages {
 public:
  virtual ~HaloMessages() = default;

  // A message to or from a rank of the grid.
  struct Message {
    int rank = 0;
    int64_t rows = 0;  // rows of its tensor
    int64_t cols = 0;
  };

  // One exchange: the caller fills the messages, calls start(), computes, calls wait(), and reads
  // the received messages.
  class Exchange {
   public:
    virtual ~Exchange() = default;
    virtual Tensor sent(size_t index) = 0;
    // Starts to send and receive. Does not block.
    virtual void start() = 0;
    // Blocks until all messages are complete.
    virtual void wait() = 0;
    virtual ConstTensor received(size_t index) = 0;
  };

  // Creates an exchange. Collective among the ranks of the grid: for each message that this rank
  // receives, the sender must have a message of the same size. In a pass without a mesh received
  // data are 0.
  virtual std::unique_ptr<Exchange> begin(Pass& pass, DType type, std::vector<Message> sent,
                                          std::vector<Message> received) const = 0;
};

}  // namespace tutti::training
