// Rotary positions (Su et al.: RoFormer, 2021), on the pairs (i, i + head_size / 2) as LLaMA has
// them.
#pragma once

#include <cstdint>
#include <vector>

#include "training/tensor.h"

namespace tutti::training {

class Rope {
 public:
  // head_size is even (else Error(invalid_argument)).
  Rope(int64_t context, int64_t head_size, double base = 10000);

  // Rotates, in place, the first `heads` heads of each row; row r is at position r % context.
  void rotate(Tensor rows, int64_t heads) const { turn(rows, heads, 1); }
  // The backward pass: a rotation's transpose is its inverse.
  void rotate_back(Tensor rows, int64_t heads) const { turn(rows, heads, -1); }

 private:
  void turn(Tensor rows, int64_t heads, int direction) const;

  int64_t context_;
  int64_t head_size_;
  std::vector<float> table_;  // context x head_size / 2 cosines, then the sines
  std::vector<double> table_f64_;
};

}  // namespace tutti::training
