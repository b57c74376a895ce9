// Resolves a user's name of an algorithm.
#pragma once

#include <string_view>

#include "collectives/program/algorithm.h"
#include "collectives/program/program.h"

namespace tutti {

// True for the name of an importable file: "allreduce.xml", "rings.json".
bool is_algorithm_file(std::string_view name);

// Resolves a name of the catalogue, a composition "hierarchical(A,B,C)"
// (algorithms/hierarchical.h), or the path of a file, which is imported (msccl_import.h). The
// latter two are added to the catalogue. Throws Error(invalid_argument) for an unknown name, a
// defective file, or an algorithm of another collective. Thread-safe.
const Algorithm& resolve_algorithm(Collective collective, std::string_view name);

}  // namespace tutti
