// Converts MSCCL's many queues to programs.
//
// A gpu's threadblocks run side by side with one queue per channel and peer; a program has one list
// of steps and one queue per peer. All gpus are therefore executed symbolically here, with at most
// one message in flight between two gpus in each direction, and each rank's steps are recorded in
// the order found: that order also works for programs. A message is sent when its receiver can take
// it at once. Only if nothing else can progress is it sent earlier, and only if that does not help
// either is it received into scratch until its turn.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/interchange/msccl.h"
#include "collectives/program/program.h"

namespace tutti {

struct Linearized {
  std::vector<Program> programs;  // by rank
  // origins[rank][step] is the step's place in the file.
  std::vector<std::vector<MscclPlace>> origins;
};

// Throws Error(invalid_argument) that names the place: no progress, a read of an unwritten chunk,
// mixed-up parts of the data, a missing result.
Linearized linearize(const MscclAlgorithm& algorithm);

}  // namespace tutti
