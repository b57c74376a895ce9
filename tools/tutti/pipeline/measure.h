// Implements `tutti pipeline --measure`: runs schedules on real ranks that sleep instead of
// computing.
#pragma once

#include <vector>

#include "collectives/communicator.h"
#include "tools/tutti/pipeline/report.h"

namespace tutti::tool {

struct PipelineMeasuring {
  double sleep_ms = 20;  // milliseconds of sleep per unit of the costs
  int steps = 4;         // number of steps of each kind
};

// Measured values, medians over steps. Times are in units of the costs, as in a Timeline.
struct MeasuredPipeline {
  double makespan = 0;
  double bubble = 0;  // fraction of the ranks' time outside of entries
  double period = 0;
  double steady_bubble = 0;
};

// Runs the plan of the report. Collective over the plan's ranks, which must be on one host because
// their clocks are compared. Returns the same result on all of them.
MeasuredPipeline measure(Communicator& stages, const PipelineReport& report,
                         const training::pipeline::Costs& costs,
                         const PipelineMeasuring& measuring);

// Returns a few lines that compare measured and simulated values.
std::string text_of(const PipelineReport& report, const MeasuredPipeline& measured);
Json json_of(const PipelineReport& report, const MeasuredPipeline& measured);

// Runs and prints each plan. Collective; the number of ranks must be a multiple of each plan's
// number of ranks. Returns false on rank 0 if a bubble differs from the simulated one by more than
// the tolerance, otherwise true.
bool measure_all(Communicator& world, const std::vector<PipelineReport>& reports,
                 const training::pipeline::Costs& costs, const PipelineMeasuring& measuring);

}  // namespace tutti::tool
