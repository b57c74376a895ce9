// A check that ranks multiply alike, where each computes by itself values that all are to have in
// the same bits.
#pragma once

#include <string>

#include "base/dtype.h"
#include "collectives/communicator.h"

namespace tutti::training {

// Throws Error(unsupported) on all ranks where a product of values of this type has other bits on
// some: their processors, or the instructions that they may use, differ. `work`: what the ranks
// cannot do then, "send gradients as factors". Collective.
void check_same_products(Communicator& ranks, DType type, const std::string& work,
                         const std::string& remedy);

}  // namespace tutti::training
