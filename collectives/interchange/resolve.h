// Finds the algorithm that a name given by the user denotes.
#pragma once

#include <string_view>

#include "collectives/program/algorithm.h"
#include "collectives/program/program.h"

namespace tutti {

// Returns true for the name of an importable file: "allreduce.xml", "rings.json".
bool is_algorithm_file(std::string_view name);

// Returns the algorithm. `name` is a name of the catalogue, a composition "hierarchical(A,B,C)"
// (algorithms/hierarchical.h), or the path of a file, which is imported (msccl_import.h).
// Compositions and imported algorithms are added to the catalogue. Throws Error(invalid_argument)
// for an unknown name, a defective file, or an algorithm of another collective. Thread-safe.
const Algorithm& resolve_algorithm(Collective collective, std::string_view name);

}  // namespace tutti
