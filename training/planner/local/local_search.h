// Searches all layouts of a training run on ranks of this host, and predicts their times from
// measured times of the model's units.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "training/planner/search.h"
#include "training/setup/options.h"

namespace tutti::training::planner {

struct LocalQuestion {
  // The run. Settings of its layout that are given are fixed, and all others are searched.
  RunOptions run;
  int ranks = 1;
  double memory = 0;  // limit per rank, in bytes; 0: an equal share of this host's free memory
  // Called before each prediction of a layout. `number`: index of the layout, counted from 0; `of`:
  // number of layouts. If empty, no progress is reported.
  std::function<void(size_t number, size_t of)> progress;
};

// Searches all layouts and returns all of them, ranked. Blocks while units are measured, which
// takes seconds for a model of some million parameters. Throws Error(invalid_argument) if no layout
// is legal.
Plans search_locally(const LocalQuestion& question);

// Returns the run with the options of a layout.
RunOptions with_layout(const RunOptions& run, const Layout& layout);

}  // namespace tutti::training::planner
