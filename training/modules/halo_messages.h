// Pixels that ranks of a grid send each other for windows at the edges of their tiles
// (image_grid.h); who makes a module knows how they travel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "training/core/pass.h"

namespace tutti::training {

// Any number of passes may use one at once.
class HaloMessages {
 public:
  virtual ~HaloMessages() = default;

  // A message to, or from, a rank of the grid.
  struct Message {
    int rank = 0;
    int64_t rows = 0;  // of its tensor
    int64_t cols = 0;
  };

  // One exchange: fill what is sent, start(), compute, and read what is received.
  class Exchange {
   public:
    virtual ~Exchange() = default;
    virtual Tensor sent(size_t index) = 0;
    // Returns at once.
    virtual void start() = 0;
    // Waits for all messages.
    virtual void wait() = 0;
    virtual ConstTensor received(size_t index) = 0;
  };

  // Collective among the ranks of the grid: each has a message of the same size for each
  // that is to be received from it. In a pass without a mesh what others have is 0.
  virtual std::unique_ptr<Exchange> begin(Pass& pass, DType type, std::vector<Message> sent,
                                          std::vector<Message> received) const = 0;
};

}  // namespace tutti::training
