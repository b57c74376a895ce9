// Exchange of the pixels that windows at the edges of tiles need from other ranks of a grid
// (image_grid.h). The creator of a module provides the transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "training/core/pass.h"

namespace tutti::training {

// Any number of passes may use one object at once.
class HaloMessages {
 public:
  virtual ~HaloMessages() = default;

  // A message to, or from, a rank of the grid.
  struct Message {
    int rank = 0;
    int64_t rows = 0;  // of its tensor
    int64_t cols = 0;
  };

  // One exchange: fill the messages, start(), compute, wait(), and read what was received.
  class Exchange {
   public:
    virtual ~Exchange() = default;
    virtual Tensor sent(size_t index) = 0;
    // Does not block.
    virtual void start() = 0;
    // Blocks until all messages are complete.
    virtual void wait() = 0;
    virtual ConstTensor received(size_t index) = 0;
  };

  // Collective among the ranks of the grid: for each message that this rank receives, the sender
  // must have one of the same size. In a pass without a mesh received data are 0.
  virtual std::unique_ptr<Exchange> begin(Pass& pass, DType type, std::vector<Message> sent,
                                          std::vector<Message> received) const = 0;
};

}  // namespace tutti::training
