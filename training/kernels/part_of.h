#pragma once

#include <cstdint>

namespace tutti::training {

// A contiguous part of the classes, or rows, that a kernel is given: it begins at `first` of `all`.
// `all` is 0 if the part is everything.
struct PartOf {
  int64_t first = 0;
  int64_t all = 0;
  int64_t all_of(int64_t here) const { return all == 0 ? here : all; }
};

}  // namespace tutti::training
