// Interface of loops over the pieces that a rank owns when the pieces' memory may be stored in
// files.
#pragma once

#include <cstdint>
#include <span>

namespace tutti::training {

struct OwnedPiece;

// The parts of each element that a loop uses. The loop may change the states.
struct PieceParts {
  bool gradients = true;
  bool values = true;
  bool changes_values = true;
  bool states = true;
};

// A range of consecutive elements of a piece.
struct PieceRange {
  const OwnedPiece* owned = nullptr;
  int64_t first = 0;
  int64_t count = 0;
};

// Loads the memory that a loop uses before the loop uses it. At most one loop runs at a time. Any
// thread may call the functions.
class PieceLoopObserver {
 public:
  virtual ~PieceLoopObserver() = default;
  // Starts a loop over these ranges. The ranges must outlive the loop, which enters them in
  // approximately this order.
  virtual void begin_loop(std::span<const PieceRange> ranges, const PieceParts& parts) = 0;
  // Blocks until the memory of ranges[range] is loaded.
  virtual void enter(int64_t range) = 0;
  virtual void leave(int64_t range) = 0;
  virtual void end_loop() = 0;
};

}  // namespace tutti::training
