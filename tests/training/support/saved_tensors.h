// Reads all tensors of a checkpoint.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "training/checkpoint/checkpoint.h"

namespace tutti::training::testing {

// Returns the tensors of the model, the optimizer and the running statistics, by name.
inline std::map<std::string, std::vector<float>> saved_tensors(const Checkpoint& checkpoint) {
  std::map<std::string, std::vector<float>> tensors;
  for (const std::string& name : checkpoint.names()) {
    std::vector<float>& values = tensors[name];
    values.resize(static_cast<size_t>(checkpoint.find(name)->count()));
    if (checkpoint.find(name)->dtype == DType::u8) {
      std::vector<uint8_t> codes(values.size());
      checkpoint.read(name, 0, tensor_at(codes.data(), DType::u8, 1, std::ssize(codes)));
      std::ranges::copy(codes, values.begin());
      continue;
    }
    checkpoint.read(name, 0, tensor_at(values.data(), DType::f32, 1, std::ssize(values)));
  }
  return tensors;
}

}  // namespace tutti::training::testing
