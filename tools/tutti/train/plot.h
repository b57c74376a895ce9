// Plots of losses against steps or time, for `tutti train --plot` and `tutti plot`.
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
  std::string name;                                     // name of the run, if there are several
  std::vector<std::pair<uint64_t, double>> training;    // step, nats
  std::vector<std::pair<uint64_t, double>> validation;  // step, nats
  std::map<uint64_t, double> elapsed;                   // seconds by step, if known
};

enum class LossesOver { steps, time };

// Plots the losses, with one colour per run if there are several. Skips losses that are not finite
// and, against time, steps of unknown time. Without any loss there is no picture. Throws as
// Picture::draw() does.
void plot_losses(const Picture& picture, const std::string& title, std::span<const LossCurves> runs,
                 LossesOver over = LossesOver::steps);

}  // namespace tutti::tool
