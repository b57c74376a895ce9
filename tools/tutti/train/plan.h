// tutti train --plan auto.
#pragma once

#include <string>
#include <vector>

#include "training/setup/options.h"

namespace tutti::tool {

// Gives a run the layout of so many ranks of this host that is predicted to be the fastest of those
// that fit, and prints it. Returns the options that say so to each rank. Blocks while the model's
// units are timed.
std::vector<std::string> take_plan(training::RunOptions& run, int ranks);

}  // namespace tutti::tool
