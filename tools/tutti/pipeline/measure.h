// `tutti pipeline --measure`: schedules run by real ranks that sleep in place of computing.
#pragma once

#include <vector>

#include "collectives/communicator.h"
#include "tools/tutti/pipeline/report.h"

namespace tutti::tool {

struct PipelineMeasuring {
  double sleep_ms = 20;  // a unit of the costs
  int steps = 4;         // of each kind
};

// In units of the costs, as a Timeline: medians over steps.
struct MeasuredPipeline {
  double makespan = 0;
  double bubble = 0;  // the part of the ranks' time that is spent outside of entries
  double period = 0;
  double steady_bubble = 0;
};

// Collective over the ranks of the report's plan, which are on one host: their clocks are compared.
// The same result on all of them.
MeasuredPipeline measure(Communicator& stages, const PipelineReport& report,
                         const training::pipeline::Costs& costs,
                         const PipelineMeasuring& measuring);

// What was measured beside what was simulated, a few lines.
std::string text_of(const PipelineReport& report, const MeasuredPipeline& measured);
Json json_of(const PipelineReport& report, const MeasuredPipeline& measured);

// Collective over ranks whose number is a multiple of each plan's. Prints a line for each; false
// (on rank 0) if a bubble was not met.
bool measure_all(Communicator& world, const std::vector<PipelineReport>& reports,
                 const training::pipeline::Costs& costs, const PipelineMeasuring& measuring);

}  // namespace tutti::tool
