// Computes the expected results of calls with a wire format (CallOptions::wire). Rounds the inputs
// as the encoding does, and reduces them in the order and with the roundings of each chunk's
// formula. The formulas come from a symbolic run of the call's program
// (collectives/proof/expression.h).
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
