// Implements `tutti pipeline SCHEDULE`: the report on one schedule.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "training/pipeline/check.h"
#include "training/pipeline/closed_form.h"
#include "training/pipeline/plan.h"
#include "training/pipeline/schedules.h"
#include "training/pipeline/simulate.h"

namespace tutti::tool {

struct PipelineReport {
  training::pipeline::Plan plan;
  training::pipeline::Bounds bounds;
  training::pipeline::Timeline timeline;
  std::optional<training::pipeline::ClosedForm> closed_form;

  // For schedules without flushes: the time that a continuing run takes for as many micro-batches
  // again, and the idle fraction of that time. Not set if the schedule does not support twice the
  // micro-batches.
  struct Unflushed {
    double period = 0;
    double bubble = 0;
  };
  std::optional<Unflushed> unflushed;
};

// Proves and simulates a schedule. Throws Error for an unknown schedule, a failed proof and invalid
// costs.
PipelineReport report_on(const training::pipeline::ScheduleKind& kind,
                         const training::pipeline::Shape& shape,
                         const training::pipeline::Costs& costs);

// Returns a title: "1f1b, 4 ranks, 8 micro-batches".
std::string title_of(const PipelineReport& report);
// Returns makespan, bubble and activations, as lines below a picture's title.
std::vector<std::string> subtitle_of(const PipelineReport& report);
// Returns the text below the title: the proof, a line per rank, and times.
std::string text_of(const PipelineReport& report);
Json json_of(const PipelineReport& report);

}  // namespace tutti::tool
