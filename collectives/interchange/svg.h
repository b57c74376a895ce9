// Draws an algorithm: ranks as columns, rounds downward, an arrow for each message.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/interchange/timing.h"
#include "collectives/program/plan.h"

namespace tutti {

// Figures of an algorithm that papers report.
struct Figures {
  int32_t rounds = 0;
  int64_t messages = 0;
  // The largest amount that any rank sends, in multiples of the larger of the call's two buffers.
  double volume = 0;
};
Figures figures(std::span<const Plan> plans, const Timing& timing);

// Returns a label for the parts of the data in a range list: "0-3,8", or "i3" and the like if
// chunks with the same index hold different data (all_to_all). Long lists are truncated.
std::string parts(const Plan& plan, const RangeList& ranges);

// Returns a complete SVG document. `subtitle`: lines below the title.
std::string to_svg(std::span<const Plan> plans, const Timing& timing, const std::string& title,
                   const std::vector<std::string>& subtitle);

}  // namespace tutti
