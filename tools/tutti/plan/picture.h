// Implements tutti plan --plot: draws a layout's step and memory as a picture.
#pragma once

#include <string>

#include "training/planner/search.h"

namespace tutti::tool {

// Returns an SVG document: the timeline of a pipeline's stages for the first micro-batches and,
// below it, the memory of a rank of each stage, by kind. `turns`: number of ranks per processor if
// ranks take turns on a host's processors. The timeline assumes one processor for each rank.
std::string picture_of(const training::planner::Job& job,
                       const training::planner::PlannedLayout& planned, double turns = 1);

}  // namespace tutti::tool
