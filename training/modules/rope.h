// Rotary position embedding (Su et al.: RoFormer, 2021) of the pairs (i, i + head_size / 2), as in
// Hugging Face's Llama. Pair i is rotated by position * base^(-2 i / head_size), reduced by a
// scaling for contexts longer than in pretraining.
#pragma once

#include <cstdint>
#include <vector>

#include "training/core/tensor.h"

namespace tutti::training {

// Scaling of the rotations for long contexts (Hugging Face's rope_scaling).
enum class RopeScaling {
  none,
  linear,   // divides all frequencies by `factor` (Chen et al.: Extending context window, 2023)
  dynamic,  // uses a larger base if `context` exceeds `original_context` (NTK-aware)
  llama3,   // divides low frequencies by `factor`, keeps high ones, interpolates in between
};

struct RopeOptions {
  double base = 10000;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1;
  int64_t original_context = 0;  // context length of pretraining; used by dynamic and llama3
  // llama3: low_freq_factor and high_freq_factor. A pair's frequency is low if it makes fewer than
  // `low_turns` turns over the original context, and high if it makes more than `high_turns`.
  double low_turns = 1;
  double high_turns = 4;
  bool operator==(const RopeOptions&) const = default;
};

class Rope {
 public:
  // Computes the rotations of positions below `context`. Throws Error(invalid_argument) for an odd
  // head_size, and for invalid factors and bases.
  Rope(int64_t context, int64_t head_size, const RopeOptions& options = {});

  // Rotates, in place, the first `heads` heads of each row. Each sample has `context` rows; its
  // first one has position `first`.
  void rotate(Tensor rows, int64_t heads, int64_t context, int64_t first = 0) const {
    turn(rows, heads, context, first, 1);
  }
  // Does backward: the inverse rotation, because the transpose of a rotation is its inverse.
  void rotate_back(Tensor rows, int64_t heads, int64_t context, int64_t first = 0) const {
    turn(rows, heads, context, first, -1);
  }

 private:
  void turn(Tensor rows, int64_t heads, int64_t context, int64_t first, int direction) const;

  int64_t context_;
  int64_t head_size_;
  std::vector<float> table_;  // for each position head_size / 2 cosines, then as many sines
  std::vector<double> table_f64_;
};

}  // namespace tutti::training
