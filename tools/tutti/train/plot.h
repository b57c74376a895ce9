// Plots losses against steps or time, for `tutti train --plot` and `tutti plot`.
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
  std::vector<std::pair<uint64_t, double>> training;    // pairs of step and training loss in nats
  std::vector<std::pair<uint64_t, double>> validation;  // pairs of step and validation loss in nats
  std::map<uint64_t, double> elapsed;                   // by step: elapsed seconds, if known
};

enum class LossesOver { steps, time };

// Plots the losses, with one colour per run if there are several. Skips losses that are not finite
// and, in plots against time, steps of unknown time. If no loss is left, draws no picture. Throws
// the errors of Picture::draw().
void plot_losses(const Picture& picture, const std::string& title, std::span<const LossCurves> runs,
                 LossesOver over = LossesOver::steps);

}  // namespace tutti::tool
