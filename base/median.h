// The median of numbers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tutti {

// Of an even number of them, the mean of the middle two; of none, 0.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace tutti
