// Rows of a result that are computed one part after the other, so that the first ones are on their
// way to other ranks while the others are computed.
#pragma once

#include <cstddef>
#include <span>

#include "training/core/placement.h"
#include "training/core/tensor.h"

namespace tutti::training {

class RowsInTurn {
 public:
  virtual ~RowsInTurn() = default;
  // In the order in which they are computed; together all rows. Empty: they are computed at once,
  // and done() is not called.
  virtual std::span<const Share> parts() const = 0;
  // This part of the result is there. (`result`: all of it, the same at each call.)
  virtual void done(Tensor result, size_t part) = 0;
};

}  // namespace tutti::training
