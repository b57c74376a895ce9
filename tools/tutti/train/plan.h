// Implements tutti train --plan auto.
#pragma once

#include <string>
#include <vector>

#include "training/planner/local/local_search.h"

namespace tutti::tool {

// Chooses for the run the layout of `ranks` ranks of this host that fits and is predicted to be the
// fastest, and prints it if `prints` is true. Returns the options that select the layout on each
// rank. Blocks while the model's units are timed.
std::vector<std::string> take_plan(training::RunOptions& run, int ranks, bool prints);

// Calls search_locally() and shows its progress on a terminal.
training::planner::Plans search_showing_progress(training::planner::LocalQuestion question);

}  // namespace tutti::tool
