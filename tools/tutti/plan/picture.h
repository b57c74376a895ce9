// tutti plan --plot: a layout's step and memory as a picture.
#pragma once

#include <string>

#include "training/planner/search.h"

namespace tutti::tool {

// An SVG document: the timeline of a pipeline's stages for the first micro-batches, and below it
// the memory of a rank of each stage, by kind. `turns`: ranks for each processor of a host, on
// which they take turns; the timeline is that of ranks with processors of their own.
std::string picture_of(const training::planner::Job& job,
                       const training::planner::PlannedLayout& planned, double turns = 1);

}  // namespace tutti::tool
