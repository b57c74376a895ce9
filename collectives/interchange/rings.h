// Rings that were found on a machine, as `tutti topo --json` writes them, made into an all-reduce
// over all of them at a time.
//
//   {"rings": [[0, 1, 3, 2], [0, 2, 3, 1]]}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/program/program.h"

namespace tutti {

// By rank. Each ring must hold the same ranks, from 0, each of them once; other members are passed
// over. Throws Error(invalid_argument) that names the ring.
std::vector<Program> read_rings(std::string_view json, const std::string& file);

}  // namespace tutti
