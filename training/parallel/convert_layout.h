// Converts activations from one layout to another, inside units. The two layouts determine the
// collective:
//
//   from \ to     replicated             rows             columns
//   replicated    -                      own rows         own columns
//   rows          all-gather             -                all-to-all
//   columns       all-gather             all-to-all       -
//   partial       all-reduce             reduce-scatter   all-reduce, own columns
//
// Backward converts the gradient in the opposite direction. If each rank uses a replicated tensor
// for a different part of the computation, the tensor's gradient is partial.
#pragma once

#include "training/core/activation_layout.h"
#include "training/core/pass.h"

namespace tutti::training {

// Shape of the tensor that all ranks along an axis have together.
struct WholeShape {
  int64_t rows = 0;
  int64_t cols = 0;
};

// Returns `tensor`, which must be contiguous, converted from layout `from` to `to`. The layouts may
// differ along at most one axis. `whole`: the shape of the tensor that all ranks along that axis
// have together. `place`: the place of the rank for which the model was built. The result is in the
// memory of `tensor` (a sum overwrites this rank's term; own rows or columns are views) or in the
// pass's arena.
//
// Collective among the ranks along the axis, and blocking: Mesh::unit_traffic() counts bytes and
// time. Without a mesh (a model that is measured on one rank), other ranks' data are treated as 0,
// and an all-to-all returns only zeros. In deterministic mode the terms of a sum are added in a
// fixed order (core/slices.h).
Tensor convert_layout(Pass& pass, const MeshPlace& place, Tensor tensor, const WholeShape& whole,
                      const ActivationLayout& from, const ActivationLayout& to);
// Overload for conversions without a sum.
ConstTensor convert_layout(Pass& pass, const MeshPlace& place, ConstTensor tensor,
                           const WholeShape& whole, const ActivationLayout& from,
                           const ActivationLayout& to);

// Replaces each element by its maximum over the ranks along `axis`. Collective among these ranks
// and blocking.
void largest_over_ranks(Pass& pass, const MeshPlace& place, Axis axis, Tensor tensor);

}  // namespace tutti::training
