// Sums over ranks whose bits are equal for every number of ranks that divides the number of slices
// (core/slices.h).
#pragma once

#include "collectives/communicator.h"
#include "training/core/arena.h"
#include "training/core/tensor.h"

namespace tutti::training {

// Reduce-scatter in a fixed order. Each rank has a tensor of equal size, divided into a block per
// rank. `own` becomes the sum of all ranks' blocks with this rank's number; it may be this rank's
// block in the tensor. Collective and blocking. Temporaries come from the arena.
void sum_in_order(Arena& arena, Communicator& ranks, ConstTensor tensor, const Blocks& blocks,
                  Tensor own);

}  // namespace tutti::training
