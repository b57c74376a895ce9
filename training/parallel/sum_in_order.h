// Sums over ranks whose bits are the same for every number of ranks that divides the slices
// (core/slices.h).
#pragma once

#include "collectives/communicator.h"
#include "training/core/arena.h"
#include "training/core/tensor.h"

namespace tutti::training {

// Each rank has a tensor of as many elements, cut into a block for each rank; `own`, which may be
// this rank's block in the tensor, becomes the sum of all ranks' blocks of its number. Collective,
// and blocks. Temporaries come from the arena.
void sum_in_order(Arena& arena, Communicator& ranks, ConstTensor tensor, const Blocks& blocks,
                  Tensor own);

}  // namespace tutti::training
