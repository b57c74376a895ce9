// Loops over the pieces that a rank owns, whose memory may be in files.
#pragma once

#include <cstdint>
#include <span>

namespace tutti::training {

struct OwnedPiece;

// What a loop uses of each element. It may change values and states.
struct PieceParts {
  bool gradients = true;
  bool values = true;
  bool changes_values = true;
  bool states = true;
};

// Elements of a piece.
struct PieceRange {
  const OwnedPiece* owned = nullptr;
  int64_t first = 0;
  int64_t count = 0;
};

// Has in memory what a loop uses. One loop at a time; of a loop, any thread.
class PieceLoopObserver {
 public:
  virtual ~PieceLoopObserver() = default;
  // A loop over these ranges begins, which outlive it. They are entered in about their order.
  virtual void begin_loop(std::span<const PieceRange> ranges, const PieceParts& parts) = 0;
  // Returns when the range of that number is in memory.
  virtual void enter(int64_t range) = 0;
  virtual void leave(int64_t range) = 0;
  virtual void end_loop() = 0;
};

}  // namespace tutti::training
