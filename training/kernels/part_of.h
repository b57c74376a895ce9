#pragma once

#include <cstdint>

namespace tutti::training {

// The contiguous part of a model's classes, or of a table's rows, that a kernel's tensor contains.
// It begins at index `first` of `all` classes or rows. `all` = 0: the tensor contains all of them.
struct PartOf {
  int64_t first = 0;
  int64_t all = 0;
  int64_t all_of(int64_t here) const { return all == 0 ? here : all; }
};

}  // namespace tutti::training
