// tutti train --plan auto.
#pragma once

#include <string>
#include <vector>

#include "training/planner/local/local_search.h"

namespace tutti::tool {

// Gives a run the layout of so many ranks of this host that is predicted to be the fastest of those
// that fit, and prints it if it `tells`. Returns the options that say so to each rank. Blocks while
// the model's units are timed.
std::vector<std::string> take_plan(training::RunOptions& run, int ranks, bool tells);

// search_locally() with its progress on a terminal.
training::planner::Plans search_showing_progress(training::planner::LocalQuestion question);

}  // namespace tutti::tool
