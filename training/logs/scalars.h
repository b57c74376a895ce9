// Named numbers of one step, for CSV and TensorBoard files.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti::training {

struct Scalars {
  uint64_t step = 0;
  std::vector<std::pair<std::string, double>> values;
};

}  // namespace tutti::training
