// Median.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tutti {

// Returns the mean of the middle two for an even count, 0 for an empty list.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace tutti
