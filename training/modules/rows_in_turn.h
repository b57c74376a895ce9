// A result whose rows are computed in parts, so that the first parts are sent to other ranks while
// the others are computed.
#pragma once

#include <cstddef>
#include <span>

#include "training/core/placement.h"
#include "training/core/tensor.h"

namespace tutti::training {

class RowsInTurn {
 public:
  virtual ~RowsInTurn() = default;
  // The parts in the order of computation; together all rows. Empty: all rows are computed at once,
  // and done() is not called.
  virtual std::span<const Share> parts() const = 0;
  // Called when this part of the result is complete. `result`: the whole, the same at each call.
  virtual void done(Tensor result, size_t part) = 0;
};

}  // namespace tutti::training
