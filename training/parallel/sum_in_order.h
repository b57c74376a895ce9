// Sums over ranks. The result has the same bits for every number of ranks that divides the number
// of slices (core/slices.h).
#pragma once

#include "collectives/communicator.h"
#include "training/core/arena.h"
#include "training/core/tensor.h"

namespace tutti::training {

// Reduce-scatter in a fixed order. Each rank has a tensor of equal size, divided into a block per
// rank. On rank r, `own` becomes the sum of block r over all ranks' tensors. `own` may be the
// memory of block r in `tensor`. Collective and blocking. Temporaries come from the arena.
void sum_in_order(Arena& arena, Communicator& ranks, ConstTensor tensor, const Blocks& blocks,
                  Tensor own);

}  // namespace tutti::training
