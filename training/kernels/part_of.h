#pragma once

#include <cstdint>

namespace tutti::training {

// A kernel is given the classes, or rows, from `first` on, of `all` that there are. 0: all are
// given.
struct PartOf {
  int64_t first = 0;
  int64_t all = 0;
  int64_t all_of(int64_t here) const { return all == 0 ? here : all; }
};

}  // namespace tutti::training
