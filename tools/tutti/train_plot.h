// `tutti train --plot`: losses over steps, drawn by gnuplot.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tools/tutti/gnuplot.h"

namespace tutti::tool {

struct LossCurves {
  std::vector<std::pair<uint64_t, double>> training;    // step, nats
  std::vector<std::pair<uint64_t, double>> validation;  // step, nats
};

// Losses that are not finite are left out. Without any loss there is no picture. Throws as
// Picture::draw() does.
void plot_losses(const Picture& picture, const std::string& title, const LossCurves& curves);

}  // namespace tutti::tool
