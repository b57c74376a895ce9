// Computes the expected results of calls with a wire format (CallOptions::wire). Rounds the inputs
// by the encoding, and reduces them with the roundings of a formula. The proof of the call's
// program contains the formula of each chunk (collectives/proof/expression.h).
#pragma once

#include <vector>

#include "base/reduce_op.h"
#include "base/wire_format.h"
#include "bench/layout.h"
#include "collectives/communicator.h"

namespace tutti::bench {

// Returns the output of a rank, exact to the bit. Bytes that are not written are kUntouched. `call`
// is the rank's call of layout.collective.
std::vector<float> wire_reference(WireFormat wire, Data data, ReduceOp op, const Layout& layout,
                                  int rank, const Prepared& call);

}  // namespace tutti::bench
