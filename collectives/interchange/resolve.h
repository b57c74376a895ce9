// From what a person calls an algorithm to the algorithm.
#pragma once

#include <string_view>

#include "collectives/program/algorithm.h"
#include "collectives/program/program.h"

namespace tutti {

// Whether the name is that of a file to import: "allreduce.xml".
bool is_algorithm_file(std::string_view name);

// A name of the catalogue; a composition, "hierarchical(A,B,C)" (algorithms/hierarchical.h); or the
// path of an XML file in MSCCL's format, which is imported. The latter two are added to the
// catalogue. Throws Error(invalid_argument): there is none of that name, the file is wrong, or it
// is for another collective. Any thread.
const Algorithm& resolve_algorithm(Collective collective, std::string_view name);

}  // namespace tutti
