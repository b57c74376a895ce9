// A plan applied to one kind of call: each step with the bytes that it moves. What the executor
// would otherwise work out anew in every call and for every slice.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/program/chunk_map.h"
#include "collectives/program/plan.h"

namespace tutti {

// A chunk, in bytes from the start of its buffer. Scratch is laid out here; it holds accumulators
// where there are any.
struct Piece {
  Space space = Space::input;
  bool widened = false;  // accumulators, not elements
  bool scales = false;   // to be scaled when it is read
  uint64_t offset = 0;   // bytes
  uint64_t length = 0;   // elements
};

// Less is copied sooner than it comes back.
inline constexpr uint64_t kLeastLent = 4 << 10;  // bytes

struct Move {
  StepKind kind = StepKind::copy;
  bool received_on_left = false;
  bool widened = false;    // what travels are accumulators
  bool one_piece = false;  // what travels is one piece as it is: nothing to compute or collect
  bool computes = false;   // scales or divides
  bool divides = false;
  int32_t peer = -1;  // the first one
  std::span<const int32_t> peers;
  uint64_t elements = 0;  // of the message, over all slices
  std::array<uint64_t, 2> signature = {};
  std::span<const Piece> src;
  std::span<const Piece> src2;
  std::span<const Piece> dst;
  bool is_result = false;  // goes to the output, and no later step looks at it
  bool lendable = false;   // a send whose payload may be read where it lies
};

class Moves {
 public:
  Moves() = default;
  Moves(const Moves&) = delete;  // moves point into pieces
  Moves& operator=(const Moves&) = delete;
  Moves(Moves&&) = default;
  Moves& operator=(Moves&&) = default;

  struct Bytes {
    uint64_t element = 1;
    uint64_t accumulator = 0;  // 0: elements are their own
    uint64_t scratch_chunk = 0;
  };
  // `private_blocks`: a message says how long its block is, where only its two ranks know.
  void make(const Plan& plan, const ChunkMap& chunks, const Bytes& bytes,
            const std::array<uint64_t, 2>& signature, bool private_blocks);

  const Move& operator[](size_t step) const { return moves_[step]; }
  size_t size() const { return moves_.size(); }

 private:
  std::vector<Move> moves_;
  std::vector<Piece> pieces_;
};

}  // namespace tutti
