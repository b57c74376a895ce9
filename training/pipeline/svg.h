// Draws a pipeline's step as an SVG picture: ranks as rows, time to the right, a box per entry.
//
//   rank 0  [0][1][2][//////][0  ][3][1  ] ...    [2]: forward of micro-batch 2
//   rank 1  ///[0][1][0  ][2][1  ] ...            //: idle
#pragma once

#include <string>
#include <vector>

#include "training/pipeline/plan.h"
#include "training/pipeline/simulate.h"

namespace tutti::training::pipeline {

// Returns a complete SVG document. `timeline` is the plan's; `subtitle` has lines below the title;
// `below` is placed under the rows. Boxes and idle times have class "forward", "backward",
// "backward_input", "backward_weight" and "idle", weight updates (schedules without flushes) have
// class "update"; hovering over one shows its times. Shades from dark to light distinguish the
// chunks of a rank, or the directions of micro-batches through the ranks (Chimera).
struct PicturePart {
  double height = 0;
  std::string body;  // shapes of base/svg.h, from (0, 0) downwards
};
std::string to_svg(const Plan& plan, const Timeline& timeline, const std::string& title,
                   const std::vector<std::string>& subtitle, const PicturePart& below = {});

}  // namespace tutti::training::pipeline
