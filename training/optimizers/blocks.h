// Block-wise work of optimizers in fp32 and in the first-level cache: for all types in memory, an
// update is the same few loops over floats.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>

#include "training/core/piece_loop.h"
#include "training/optimizers/optimizer.h"

namespace tutti::training {

inline constexpr int64_t kUpdateBlock = 1024;              // elements; a multiple of kAlignment
inline constexpr int64_t kPieceRange = 32 * kUpdateBlock;  // elements that a thread takes at a time

// Up to kUpdateBlock consecutive elements of a piece.
struct UpdateBlock {
  const OwnedPiece& owned;
  int64_t first;                      // index of the first of these elements, in the piece
  std::span<float> values;            // fp32: the master's, or a copy of the model's
  std::span<const float> gradients;   // fp32, before multiplication by gradient_factor
  std::array<float*, 2> states = {};  // the optimizer's, in its order; null: none

  int64_t size() const { return static_cast<int64_t>(values.size()); }
};

// Calls `visit` for the blocks of the pieces on the calling thread's pool, in any order and
// concurrently. It may change states, unless `states` is empty.
void read_blocks(std::span<const OwnedPiece> pieces, Optimizer::States states,
                 const std::function<void(const UpdateBlock&)>& visit);
// Likewise; also writes the model's copy of each block after `visit` has updated its values.
void update_blocks(std::span<const OwnedPiece> pieces, Optimizer::States states,
                   const StepOptions& options,
                   const std::function<void(const UpdateBlock&)>& visit);

// Calls visit(piece, first, count) for ranges of up to kPieceRange elements that make up the
// pieces, on the calling thread's pool. Loads the `parts` of each range that are in files.
void parallel_pieces(std::span<const OwnedPiece> pieces, const PieceParts& parts,
                     const std::function<void(const OwnedPiece&, int64_t, int64_t)>& visit);

// Returns the elements of a row, converted into `buffer` unless they are floats in the host's
// memory. Throws Error(unsupported) for types other than f16, bf16 and f32.
std::span<const float> as_floats(ConstTensor row, std::span<float> buffer);

}  // namespace tutti::training
