// Search over all layouts of a training run on ranks of this host, priced by measured unit times.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "training/planner/search.h"
#include "training/setup/options.h"

namespace tutti::training::planner {

struct LocalQuestion {
  RunOptions run;  // given settings are fixed; all others of a layout are searched
  int ranks = 1;
  double memory = 0;  // limit per rank, in bytes; 0: its share of this host's free memory
  // Called for layout `number` of `of`. Empty: no progress is reported.
  std::function<void(size_t number, size_t of)> progress;
};

// Searches all layouts and returns all of them, ranked. Blocks while units are measured: seconds
// for a model of some million parameters. Throws Error(invalid_argument) if no layout is legal.
Plans search_locally(const LocalQuestion& question);

// Returns the run with the options of a layout.
RunOptions with_layout(const RunOptions& run, const Layout& layout);

}  // namespace tutti::training::planner
