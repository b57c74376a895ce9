// The numbers of one step, by name: what CSV and TensorBoard files are made of.
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
