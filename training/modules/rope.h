// Rotary positions (Su et al.: RoFormer, 2021), on the pairs (i, i + head_size / 2) as Hugging
// Face's Llama has them. Pair i turns by position * base^(-2 i / head_size), slowed down where a
// model is to see more than it was first trained on.
#pragma once

#include <cstdint>
#include <vector>

#include "training/core/tensor.h"

namespace tutti::training {

// How pairs are slowed down (Hugging Face's rope_scaling).
enum class RopeScaling {
  none,
  linear,   // all by `factor` (Chen et al.: Extending context window, 2023)
  dynamic,  // a larger base, where `context` is longer than `original_context` (NTK-aware)
  llama3,   // slow pairs by `factor`, fast ones not, and those between by something between
};

struct RopeOptions {
  double base = 10000;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1;
  int64_t original_context = 0;  // dynamic and llama3
  // llama3: pairs are slow that turn less often than this over the original context, and fast
  // that turn more often.
  double low_turns = 1;
  double high_turns = 4;
  bool operator==(const RopeOptions&) const = default;
};

class Rope {
 public:
  // For positions below `context`. Throws Error(invalid_argument) for an odd head_size, and for
  // factors and bases that make no sense.
  Rope(int64_t context, int64_t head_size, const RopeOptions& options = {});

  // Rotates, in place, the first `heads` heads of each row. Rows are of samples of `context` rows
  // each, the first of which is at position `first`.
  void rotate(Tensor rows, int64_t heads, int64_t context, int64_t first = 0) const {
    turn(rows, heads, context, first, 1);
  }
  // The backward pass: a rotation's transpose is its inverse.
  void rotate_back(Tensor rows, int64_t heads, int64_t context, int64_t first = 0) const {
    turn(rows, heads, context, first, -1);
  }

 private:
  void turn(Tensor rows, int64_t heads, int64_t context, int64_t first, int direction) const;

  int64_t context_;
  int64_t head_size_;
  std::vector<float> table_;  // for each position head_size / 2 cosines, then the sines
  std::vector<double> table_f64_;
};

}  // namespace tutti::training
