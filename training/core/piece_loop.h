// Loops over the pieces that a rank owns, whose memory may be in files.
#pragma once

#include <cstdint>
#include <span>

namespace tutti::training {

struct OwnedPiece;

// Parts of each element that a loop uses. It may change states.
struct PieceParts {
  bool gradients = true;
  bool values = true;
  bool changes_values = true;
  bool states = true;
};

// Consecutive elements of a piece.
struct PieceRange {
  const OwnedPiece* owned = nullptr;
  int64_t first = 0;
  int64_t count = 0;
};

// Loads the memory that a loop uses. At most one loop runs at a time; its calls may come from any
// thread.
class PieceLoopObserver {
 public:
  virtual ~PieceLoopObserver() = default;
  // Starts a loop over these ranges, which must outlive it and are entered approximately in order.
  virtual void begin_loop(std::span<const PieceRange> ranges, const PieceParts& parts) = 0;
  // Blocks until range number `range` is in memory.
  virtual void enter(int64_t range) = 0;
  virtual void leave(int64_t range) = 0;
  virtual void end_loop() = 0;
};

}  // namespace tutti::training
