// From MSCCL's many queues to programs.
//
// A gpu's threadblocks run side by side and have one queue per channel and peer; a program has one
// list of steps, and one queue per peer. So all gpus are run here, symbolically, with at most one
// message on its way between two of them in each direction, and each rank's steps are written down
// in the order found: that order then works for programs too. A message is sent when its receiver
// can take it at once; only where nothing else can move, earlier than that; and only where that
// does not help either, it is received into scratch until its turn has come.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/interchange/msccl.h"
#include "collectives/program/program.h"

namespace tutti {

struct Linearized {
  std::vector<Program> programs;  // by rank
  // The place in the file that each rank's each step comes from.
  std::vector<std::vector<MscclPlace>> origins;
};

// Throws Error(invalid_argument) that names the place: no progress, a read of what nothing wrote,
// parts of the data that are mixed up, a result that is missing.
Linearized linearize(const MscclAlgorithm& algorithm);

}  // namespace tutti
