// All layouts of a training run on ranks of this host, priced by what its units take here.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "training/planner/search.h"
#include "training/setup/options.h"

namespace tutti::training::planner {

struct LocalQuestion {
  RunOptions run;  // settings that it gives stay as they are; all others of a layout are searched
  int ranks = 1;
  double memory = 0;  // bytes of a rank at most; 0: its part of what this host has free
  // Told of each layout: of so many, it is the next one. Empty: nobody is.
  std::function<void(size_t number, size_t of)> progress;
};

// Searches all layouts and returns all of them, ranked. Blocks while units are measured: seconds
// for a model of some million parameters. Throws Error(invalid_argument) if no layout is legal.
Plans search_locally(const LocalQuestion& question);

// A run in a layout, as if its options had been given.
RunOptions with_layout(const RunOptions& run, const Layout& layout);

}  // namespace tutti::training::planner
