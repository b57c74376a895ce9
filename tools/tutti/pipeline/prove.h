// Implements `tutti pipeline --prove`: proves every schedule for every shape that it supports.
#pragma once

#include <string>

namespace tutti::tool {

struct PipelineProofs {
  std::string schedule;  // name of the schedule; empty: all
  int max_ranks = 16;
  int max_micro_batches = 32;
  int max_virtual = 4;
};

// Prints a line per schedule, the problems, and the total; returns the exit code. Throws
// Error(invalid_argument) for limits below 1 and for an unknown schedule.
int prove_pipelines(const PipelineProofs& limits);

}  // namespace tutti::tool
