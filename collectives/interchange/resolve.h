// From what a person calls an algorithm to the algorithm.
#pragma once

#include <string_view>

#include "collectives/program/algorithm.h"
#include "collectives/program/program.h"

namespace tutti {

// Whether the name is that of a file to import: "allreduce.xml", "rings.json".
bool is_algorithm_file(std::string_view name);

// A name of the catalogue; a composition, "hierarchical(A,B,C)" (algorithms/hierarchical.h); or the
// path of a file, which is imported (msccl_import.h). The latter two are added to the
// catalogue. Throws Error(invalid_argument): there is none of that name, the file is wrong, or it
// is for another collective. Any thread.
const Algorithm& resolve_algorithm(Collective collective, std::string_view name);

}  // namespace tutti
