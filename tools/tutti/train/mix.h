// tutti train --mix auto.
#pragma once

#include <string>
#include <vector>

#include "training/setup/options.h"

namespace tutti::tool {

// Gives a run the mix of layers whose costs on so many ranks of this host are least, and prints it
// if it `tells`. Returns the options that say so to each rank. Blocks while layers are timed.
std::vector<std::string> take_mix(training::RunOptions& run, int ranks, bool tells);

}  // namespace tutti::tool
