// What comes back where f32 elements travel in another format (CallOptions::wire): the inputs,
// rounded as they are encoded, and combined with the roundings of the formula that the proof of the
// call's program has for each of its chunks (collectives/proof/expression.h).
#pragma once

#include <vector>

#include "base/reduce_op.h"
#include "base/wire_format.h"
#include "bench/layout.h"
#include "collectives/communicator.h"

namespace tutti::bench {

// The whole output of a rank, equal bit for bit; where nothing is written, the bytes are
// kUntouched. `call` is the rank's, of layout.collective.
std::vector<float> wire_reference(WireFormat wire, Data data, ReduceOp op, const Layout& layout,
                                  int rank, const Prepared& call);

}  // namespace tutti::bench
