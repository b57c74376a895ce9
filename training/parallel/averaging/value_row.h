// All values that a rank updates, as one row of f32 that can be sent as a whole or divided at any
// element.
#pragma once

#include <cstdint>
#include <span>

#include "training/parallel/storage.h"

namespace tutti::training {

class ValueRow {
 public:
  // Creates the row. `storage` must be of stage 0, have f32 values or masters, and outlive the row.
  explicit ValueRow(ParameterStorage& storage);

  int64_t size() const { return size_; }
  // Copies elements [first, first + part.size()) of the row into `part`.
  void read(int64_t first, std::span<float> part) const;
  // Sets elements [first, first + part.size()) of the row, and the model's values, which are the
  // rounded elements.
  void write(int64_t first, std::span<const float> part);

 private:
  // Calls visit(elements in the piece, the same elements in `part`, the piece) for each piece that
  // overlaps `part`.
  template <typename Float, typename Visit>
  void each(int64_t first, std::span<Float> part, const Visit& visit) const;

  ParameterStorage& storage_;
  int64_t size_ = 0;
};

}  // namespace tutti::training
