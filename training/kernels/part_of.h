#pragma once

#include <cstdint>

namespace tutti::training {

// What is at hand (classes, rows) is [first, first + how many that is) of `all`. 0: it is all.
struct PartOf {
  int64_t first = 0;
  int64_t all = 0;
  int64_t all_of(int64_t here) const { return all == 0 ? here : all; }
};

}  // namespace tutti::training
