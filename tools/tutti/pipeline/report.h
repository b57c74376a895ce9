// `tutti pipeline SCHEDULE`: all that is to be told about one schedule.
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

  // Of schedules that are not flushed: how long m more micro-batches take in a run that goes on,
  // and idle / total then. None also where such a run needs longer updates.
  struct Unflushed {
    double period = 0;
    double bubble = 0;
  };
  std::optional<Unflushed> unflushed;
};

// Proved and simulated. Throws Error where there is no such schedule, where it is wrong, and for
// costs that make no sense.
PipelineReport report_on(const training::pipeline::ScheduleKind& kind,
                         const training::pipeline::Shape& shape,
                         const training::pipeline::Costs& costs);

// "1f1b, 4 ranks, 8 micro-batches".
std::string title_of(const PipelineReport& report);
// Makespan, bubble, activations: a few lines below a picture's title.
std::vector<std::string> subtitle_of(const PipelineReport& report);
// What the command prints below the title: the proof, a line for each rank, times.
std::string text_of(const PipelineReport& report);
Json json_of(const PipelineReport& report);

}  // namespace tutti::tool
