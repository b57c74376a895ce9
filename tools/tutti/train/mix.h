// Implements tutti train --mix auto.
#pragma once

#include <string>
#include <vector>

#include "training/setup/options.h"

namespace tutti::tool {

// Chooses for the run the mix of layers with the lowest predicted cost on `ranks` ranks of this
// host, and prints it if `prints` is true. Returns the options that select the mix on each rank.
// Blocks while layers are timed.
std::vector<std::string> take_mix(training::RunOptions& run, int ranks, bool prints);

}  // namespace tutti::tool
