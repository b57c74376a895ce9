// A layout with one bucket, for tests of communication hooks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "training/core/layout.h"
#include "training/core/parameters.h"

namespace tutti::training::testing {

// Parameters "a", "b", ... with `counts` elements, contiguous from the start of a bucket of `size`
// elements. The rest of the bucket is unused.
struct OneBucket {
  OneBucket(const std::vector<int64_t>& counts, int64_t size) {
    layout.buckets = {{.size = size}};
    int64_t offset = 0;
    for (const int64_t count : counts) {
      const auto parameter = static_cast<int>(specs.size());
      specs.emplace_back().name = std::string(1, static_cast<char>('a' + parameter));
      layout.slots.push_back({.parameter = parameter, .offset = offset, .count = count});
      layout.buckets.front().parameters.push_back(parameter);
      offset += count;
    }
  }
  std::vector<ParameterSpec> specs;
  Layout layout;
};

}  // namespace tutti::training::testing
