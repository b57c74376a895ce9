// Implements tutti train --profile: shows the time of a step by unit and kernel, as a table, as
// JSON and as a picture.
#pragma once

#include <string>

#include "base/json.h"
#include "tools/tutti/gnuplot.h"
#include "training/engine/step_profile.h"

namespace tutti::tool {

// Measured peak rates of this machine with the threads of one rank.
struct MeasuredPeaks {
  double operations_per_second = 0;  // rate of a large matrix product
  double bytes_per_second = 0;       // bytes read and written by a copy in main memory, per second
};

// Value of --profile if it is given without a file.
inline constexpr const char* kProfileTable = "table";
// Returns the picture that --profile requests, or none for the table only. Throws the errors of
// Picture's constructor.
Picture profile_picture(const std::string& profile);

// Prints a row for each unit's phases and one for each kernel. The roofline (Williams, Waterman,
// Patterson 2009) is the time that the operations take at peak rate, or that the bytes take,
// whichever is longer. A row shows the ratio of that time to its own time; the ratio exceeds 1 if
// data come from caches.
void print_profile(const training::StepProfile& profile, const MeasuredPeaks& peaks);
Json json_of(const training::StepProfile& profile, const MeasuredPeaks& peaks);
// Plots the time of each unit as bars, stacked by kernel.
void plot_profile(const Picture& picture, const training::StepProfile& profile);

}  // namespace tutti::tool
