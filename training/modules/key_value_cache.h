// Keys and values of earlier tokens, so that generating a token computes only one row.
#pragma once

#include <cstdint>
#include <map>

#include "training/core/arena.h"
#include "training/core/tensor.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {

// The cache of one sequence of at most `context` tokens, for all layers of a model.
class KeyValueCache {
 public:
  explicit KeyValueCache(int64_t context)
      : rows_((context + kTogether - 1) / kTogether * kTogether) {}

  struct Layer {
    Tensor keys, values;
  };
  // Returns the cache of the layer with address `layer`, initially zeros. Type and width must be
  // the same at each call for a layer.
  const Layer& of(const void* layer, DType type, int64_t width) {
    const auto [at, is_new] = layers_.try_emplace(layer);
    if (is_new) at->second = {zeros(type, width), zeros(type, width)};
    return at->second;
  }

 private:
  static constexpr int64_t kTogether = 128;  // number of keys in a block of attention

  Tensor zeros(DType type, int64_t width) {
    const Tensor tensor = arena_.take(type, rows_, width);
    zero(tensor);
    return tensor;
  }

  int64_t rows_;
  Arena arena_;
  std::map<const void*, Layer> layers_;
};

}  // namespace tutti::training
