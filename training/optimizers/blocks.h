// Converts pieces of parameters to fp32 block by block, so that a block stays in the first-level
// cache, and an optimizer's update needs loops over floats only, whatever the types in memory.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>

#include "training/core/piece_loop.h"
#include "training/optimizers/optimizer.h"

namespace tutti::training {

inline constexpr int64_t kUpdateBlock = 1024;  // elements per block; a multiple of kAlignment
// elements that a thread processes at a time
inline constexpr int64_t kPieceRange = 32 * kUpdateBlock;

// Up to kUpdateBlock consecutive elements of a piece.
struct UpdateBlock {
  const OwnedPiece& owned;
  int64_t first;                     // index in the piece of the block's first element
  std::span<float> values;           // fp32: the master's values, or a copy of the model's values
  std::span<const float> gradients;  // fp32, before they are multiplied by gradient_factor
  // the states, in the order of state_names(); null if there are fewer
  std::array<float*, 2> states = {};

  int64_t size() const { return static_cast<int64_t>(values.size()); }
};

// Calls `visit` for the blocks of the pieces on the calling thread's pool, in any order and
// concurrently. `visit` may change states, unless `states` is empty.
void read_blocks(std::span<const OwnedPiece> pieces, Optimizer::States states,
                 const std::function<void(const UpdateBlock&)>& visit);
// Calls `visit` as read_blocks() does. `visit` updates the values of a block, which are then
// written to the model's copy.
void update_blocks(std::span<const OwnedPiece> pieces, Optimizer::States states,
                   const StepOptions& options,
                   const std::function<void(const UpdateBlock&)>& visit);

// Calls visit(piece, first, count) on the calling thread's pool for ranges of up to kPieceRange
// elements that together make up the pieces. First loads the given `parts` of a range if they are
// in files.
void parallel_pieces(std::span<const OwnedPiece> pieces, const PieceParts& parts,
                     const std::function<void(const OwnedPiece&, int64_t, int64_t)>& visit);

// Returns the elements of a row, converted into `buffer` unless they are floats in the host's
// memory. Throws Error(unsupported) for types other than f16, bf16 and f32.
std::span<const float> as_floats(ConstTensor row, std::span<float> buffer);

}  // namespace tutti::training
