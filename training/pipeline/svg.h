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

// A picture that to_svg() places below the rows.
struct PicturePart {
  double height = 0;
  std::string body;  // shapes of base/svg.h, from (0, 0) downwards
};

// Returns a complete SVG document. `timeline`: result of simulate() for the plan; `subtitle`: lines
// below the title. Boxes and idle times have class "forward", "backward", "backward_input",
// "backward_weight" and "idle"; weight updates (schedules without flushes) have class "update".
// Hovering over a box or update shows its times. Shades from dark to light distinguish the chunks
// of a rank, or the directions of micro-batches through the ranks (Chimera).
std::string to_svg(const Plan& plan, const Timeline& timeline, const std::string& title,
                   const std::vector<std::string>& subtitle, const PicturePart& below = {});

}  // namespace tutti::training::pipeline
