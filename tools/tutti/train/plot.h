// Losses over steps, or over time, drawn by gnuplot: `tutti train --plot` and `tutti plot`.
#pragma once

#include <cstdint>
#include <map>
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
  std::map<uint64_t, double> elapsed;                   // seconds, by step; of those that told it
};

enum class LossesOver { steps, time };

// Each run has a colour, if there are several. Losses that are not finite are left out. So are,
// over time, losses of steps whose time is not known. Without any loss there is no picture. Throws
// as Picture::draw() does.
void plot_losses(const Picture& picture, const std::string& title, std::span<const LossCurves> runs,
                 LossesOver over = LossesOver::steps);

}  // namespace tutti::tool
