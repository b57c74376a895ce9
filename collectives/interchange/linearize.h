// Converts MSCCL algorithms, in which a gpu has many queues, to programs.
//
// A gpu's threadblocks run side by side, with one queue per channel and peer. A program has one
// list of steps and one queue per peer. So all gpus are executed symbolically here, with at most
// one message in flight between two gpus in each direction. Each rank's steps are recorded in the
// order in which they ran, because the program makes progress in that order too. A message is sent
// when its receiver can take it at once. If nothing can progress in this way, the first of these
// exceptions that helps is made: a message is sent before its receiver can take it; an input that a
// step overwrites and later steps read is first copied to scratch; a message is received into
// scratch before its turn.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/interchange/msccl.h"
#include "collectives/program/program.h"

namespace tutti {

struct Linearized {
  std::vector<Program> programs;  // by rank
  // origins[rank][step] is the location of the step in the file.
  std::vector<std::vector<MscclPlace>> origins;
};

// Converts the algorithm. Throws Error(invalid_argument) that names the location if the algorithm
// makes no progress, reads an unwritten chunk, mixes different parts of the data, or omits a
// result.
Linearized linearize(const MscclAlgorithm& algorithm);

}  // namespace tutti
