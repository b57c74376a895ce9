// Interface for a result whose rows are computed in parts, so that the first parts are sent to
// other ranks while later parts are computed.
#pragma once

#include <cstddef>
#include <span>

#include "training/core/placement.h"
#include "training/core/tensor.h"

namespace tutti::training {

class RowsInTurn {
 public:
  virtual ~RowsInTurn() = default;
  // Returns the parts in the order of computation; together they are all rows. If it returns no
  // parts, all rows are computed at once, and done() is not called.
  virtual std::span<const Share> parts() const = 0;
  // Called when parts()[part] is complete. `result`: the whole result, the same tensor at each
  // call.
  virtual void done(Tensor result, size_t part) = 0;
};

}  // namespace tutti::training
