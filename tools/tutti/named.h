// What a command line names: collectives, operators and element types, by Tutti's names and by
// those of NCCL and MPI. All throw Error(invalid_argument) that lists what there is, and names what
// is near.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/reduce_op.h"
#include "base/wire_format.h"
#include "collectives/program/program.h"

namespace tutti::tool {

// A collective, and whether its blocks differ in size (all_gatherv).
using NamedCollective = std::pair<Collective, bool>;

// all_reduce, allreduce, AllReduce, bcast ...; barrier, send_recv and uneven ones included.
NamedCollective any_collective_named(const std::string& name);
// One that has algorithms.
Collective collective_named(const std::string& name);
// Tutti's names of them, for shells to complete.
std::vector<std::string> collective_names();
std::vector<std::string> op_names();
std::vector<std::string> dtype_names();
std::vector<std::string> algorithm_names();
std::vector<std::string> wire_names();
std::vector<std::string> transport_names();  // as --transport takes them
// sum, SUM, ncclSum, MPI_SUM.
ReduceOp op_named(const std::string& name);
// f32, float, FP32 ...
DType dtype_named(const std::string& name);
// mx8, bf16, fp8 ...
WireFormat wire_named(const std::string& name);
// "410B", "2.5M", "1000": tokens, in powers of ten. Nothing for anything else.
std::optional<uint64_t> parse_tokens(std::string_view text);

}  // namespace tutti::tool
