#pragma once

#include <cstdint>

namespace tutti::training {

// The contiguous part of all classes, or rows, that a kernel is given: it begins at index `first`
// of `all`. `all` = 0 means that the part is the whole.
struct PartOf {
  int64_t first = 0;
  int64_t all = 0;
  int64_t all_of(int64_t here) const { return all == 0 ? here : all; }
};

}  // namespace tutti::training
