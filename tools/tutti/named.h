// Parses names of collectives, operators and element types: Tutti's and those of NCCL and MPI. All
// functions throw Error(invalid_argument) that lists the valid names and suggests the nearest one.
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

// A collective, and true if its blocks differ in size (all_gatherv).
using NamedCollective = std::pair<Collective, bool>;

// Parses all_reduce, allreduce, AllReduce, bcast ...; also accepts barrier, send_recv and
// collectives with blocks of different sizes.
NamedCollective any_collective_named(const std::string& name);
// Parses a name, but accepts only collectives with algorithms.
Collective collective_named(const std::string& name);
// Returns Tutti's names, for shell completion.
std::vector<std::string> collective_names();
std::vector<std::string> op_names();
std::vector<std::string> dtype_names();
std::vector<std::string> algorithm_names();
std::vector<std::string> wire_names();
std::vector<std::string> transport_names();  // returns the values of --transport
// Parses sum, SUM, ncclSum, MPI_SUM ...
ReduceOp op_named(const std::string& name);
// Parses f32, float, FP32 ...
DType dtype_named(const std::string& name);
// Parses mx8, bf16, fp8 ...
WireFormat wire_named(const std::string& name);
// Parses a number of tokens with decimal suffixes: "410B", "2.5M", "1000". Returns nothing for
// other text.
std::optional<uint64_t> parse_tokens(std::string_view text);

}  // namespace tutti::tool
