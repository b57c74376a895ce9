// Activations from one layout to another, inside units: what the ranks along an axis must say to
// each other for it follows from the two.
//
//   from \ to     replicated             rows             columns
//   replicated    -                      own rows         own columns
//   rows          all-gather             -                all-to-all
//   columns       all-gather             all-to-all       -
//   partial       all-reduce             reduce-scatter   all-reduce, own columns
//
// The way back of a conversion, for gradients, is another: what was replicated for ranks that use
// it each in a way of their own has a gradient that is partial.
#pragma once

#include "training/core/activation_layout.h"
#include "training/core/pass.h"

namespace tutti::training {

// Of the tensor that all ranks along an axis have together.
struct WholeShape {
  int64_t rows = 0;
  int64_t cols = 0;
};

// The layouts differ along one axis at most; `whole` is the shape with nothing cut along it, and
// `place` that of the rank for which the model was made. The tensor is contiguous. What is returned
// is the same memory (of sums: their memory in which the ranks' is added up; own rows or columns of
// it) or the pass's arena's.
//
// Collective among the ranks along the axis, and blocks: Mesh::said() counts bytes and time.
// Without a mesh (a model that is measured alone) what other ranks have is 0. In deterministic mode
// the terms of a sum are added in one order (core/slices.h).
Tensor convert_layout(Pass& pass, const MeshPlace& place, Tensor tensor, const WholeShape& whole,
                      const ActivationLayout& from, const ActivationLayout& to);
// The same where nothing is summed.
ConstTensor convert_layout(Pass& pass, const MeshPlace& place, ConstTensor tensor,
                           const WholeShape& whole, const ActivationLayout& from,
                           const ActivationLayout& to);

// Each element becomes the largest that a rank along the axis has. The same is said of it.
void largest_over_ranks(Pass& pass, const MeshPlace& place, Axis axis, Tensor tensor);

}  // namespace tutti::training
