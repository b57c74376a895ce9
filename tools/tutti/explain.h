// What the faces of `tutti explain` share: ranks on processors (explain.cc), and ranks that have a
// GPU each (explain_gpu.cc).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/cost/planner.h"
#include "collectives/cost/window_costs.h"

namespace tutti::tool {

struct GpuQuestion {
  std::string gpu;  // its class
  int ranks = 1;
  Wanted wanted;
  std::vector<uint64_t> sizes;  // as `tutti bench` counts them; one: with all candidates
  std::vector<const Algorithm*> more;
  tutti::Reach reach = tutti::Reach::slots;
};
int explain_gpu(const GpuQuestion& question);

}  // namespace tutti::tool
