// Losses over steps, drawn by gnuplot: `tutti train --plot` and `tutti plot`.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tools/tutti/gnuplot.h"

namespace tutti::tool {

struct LossCurves {
  std::string name;                                     // of the run, where there are several
  std::vector<std::pair<uint64_t, double>> training;    // step, nats
  std::vector<std::pair<uint64_t, double>> validation;  // step, nats
};

// Each run has a colour, if there are several. Losses that are not finite are left out; without any
// loss there is no picture. Throws as Picture::draw() does.
void plot_losses(const Picture& picture, const std::string& title,
                 std::span<const LossCurves> runs);

}  // namespace tutti::tool
