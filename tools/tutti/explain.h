// Declarations that the parts of `tutti explain` share: ranks on processors (explain.cc) and ranks
// with one GPU each (explain_gpu.cc).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/cost/planner.h"
#include "collectives/cost/window_costs.h"

namespace tutti::tool {

struct GpuQuestion {
  std::string gpu;  // GPU class
  int ranks = 1;
  CallToPlan wanted;
  std::vector<uint64_t> sizes;  // in bytes, as in `tutti bench`; a single size shows all candidates
  std::vector<const Algorithm*> more;
  tutti::Reach reach = tutti::Reach::slots;
  std::string costs;  // file with measured costs; empty: this host's
};
int explain_gpu(const GpuQuestion& question);

}  // namespace tutti::tool
