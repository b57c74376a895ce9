// Programs as JSON, for other tools to read and write.
//
//   {
//     "format": "tutti-programs", "version": 1,
//     "collective": "all_reduce", "algorithm": "ring", "ranks": 4, "root": 0,
//     "chunks": {"input": 4, "output": 4, "scratch": 0},
//     "chunks_per_message": 1, "fan_out": 1,
//     "programs": [                          one for each rank, in order: a list of steps
//       [
//         {"kind": "send", "peers": [1], "src": [["input", 3, 1]], "wire": "element"},
//         {"kind": "recv_reduce", "peers": [3], "src": [["input", 2, 1]],
//          "dst": [["output", 2, 1]], "received_on": "left", "wire": "element"},
//         {"kind": "reduce", "src": [...], "src2": [...], "dst": [...]},      dst = src op src2
//         {"kind": "copy", "src": [...], "dst": [...]},
//         {"kind": "recv", "peers": [3], "dst": [...], "wire": "accumulator"} ...
//       ] ...
//     ]
//   }
//
// A range is [space, first chunk, number of chunks]; program.h defines the other values. The
// arithmetic that a call's operator adds to the steps (arithmetic.h) is not part of an algorithm,
// nor of this format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/program/program.h"

namespace tutti {

struct ProgramSet {
  Collective collective = Collective::barrier;
  std::string algorithm;
  int32_t root = 0;
  std::vector<Program> programs;  // by rank
};

std::string to_json(const ProgramSet& set);

// Parses `text`. Checks its form, but not that the programs are correct; verify() proves that.
// Throws an Error(invalid_argument) that names the defect and its location.
ProgramSet programs_from_json(std::string_view text);

}  // namespace tutti
