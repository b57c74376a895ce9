// Reads rings found on a machine, as written by `tutti topo --json`, and generates an all-reduce
// over all of them at once.
//
//   {"rings": [[0, 1, 3, 2], [0, 2, 3, 1]]}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/program/program.h"

namespace tutti {

// Returns the programs by rank. Each ring must contain each of the ranks 0 .. p - 1 once; other
// members of the file are ignored. Throws Error(invalid_argument) that names the ring.
std::vector<Program> read_rings(std::string_view json, const std::string& file);

}  // namespace tutti
