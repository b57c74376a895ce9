// Sums over the ranks along an axis, inside units.
#pragma once

#include "training/core/pass.h"
#include "training/parallel/mesh.h"

namespace tutti::training {

// Each rank along the axis has a part of the tensor, contiguous; all of them then have the sum.
// Collective among them, and blocks. Nothing happens where a rank is alone along it.
inline void sum_along(const Pass& pass, Axis axis, Tensor tensor) {
  if (pass.mesh == nullptr || pass.mesh->size(axis) == 1) return;
  const Buffer buffer{tensor.data, static_cast<uint64_t>(tensor.size()), tensor.dtype};
  pass.mesh->along(axis).all_reduce(as_const(buffer), buffer);
}

}  // namespace tutti::training
