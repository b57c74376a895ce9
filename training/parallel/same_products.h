// Checks that ranks compute products with the same bits. This is necessary for results that each
// rank computes separately and that must be equal on all ranks.
#pragma once

#include <string>

#include "base/dtype.h"
#include "collectives/communicator.h"

namespace tutti::training {

// Collective. Throws Error(unsupported) on all ranks if a product of type `type` has different bits
// on some ranks, because their processors or enabled instruction sets differ. `work`: what the
// ranks cannot do then, for example "send gradients as factors".
void check_same_products(Communicator& ranks, DType type, const std::string& work,
                         const std::string& remedy);

}  // namespace tutti::training
