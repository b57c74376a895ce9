// A picture of a pipeline's step: ranks as rows, time to the right, a box for each entry.
//
//   rank 0  [0][1][2][//////][0  ][3][1  ] ...    [2]: forward of micro-batch 2
//   rank 1  ///[0][1][0  ][2][1  ] ...            //: idle
#pragma once

#include <string>
#include <vector>

#include "training/pipeline/plan.h"
#include "training/pipeline/simulate.h"

namespace tutti::training::pipeline {

// A whole SVG document; `timeline` is the plan's, `subtitle` are lines below the title. Boxes and
// idle times are of class "forward", "backward", "backward_input", "backward_weight" and "idle",
// places where weights change (schedules that are not flushed) of class "update"; pointing at one
// tells its times. Dark to light: the chunks of a rank, or the ways on which micro-batches go
// through the ranks, where there are several (Chimera).
//
// `below` goes under the rows.
struct PicturePart {
  double height = 0;
  std::string body;  // shapes of base/svg.h, from (0, 0) down
};
std::string to_svg(const Plan& plan, const Timeline& timeline, const std::string& title,
                   const std::vector<std::string>& subtitle, const PicturePart& below = {});

}  // namespace tutti::training::pipeline
