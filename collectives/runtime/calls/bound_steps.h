// A plan applied to one kind of call: each step with the bytes that it moves, computed once instead
// of in every call and for every slice.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/program/chunk_map.h"
#include "collectives/program/plan.h"

namespace tutti {

// A chunk as bytes from the start of its buffer. Scratch chunks get their locations here; scratch
// holds accumulators if the call has any.
struct Piece {
  Space space = Space::input;
  bool widened = false;  // true: accumulators, not elements
  bool scales = false;   // true: scaled when read
  uint64_t offset = 0;   // in bytes
  uint64_t length = 0;   // in elements
};

// Below this size a copy is faster than lending and waiting for the loan's return.
inline constexpr uint64_t kLeastLent = 4 << 10;  // in bytes

struct BoundStep {
  StepKind kind = StepKind::copy;
  bool received_on_left = false;
  bool widened = false;    // true: the message carries accumulators
  bool one_piece = false;  // the message is one contiguous piece, unconverted
  bool computes = false;   // true: scales or divides
  bool divides = false;
  int32_t peer = -1;  // first peer; -1: none
  std::span<const int32_t> peers;
  uint64_t elements = 0;  // message length in elements, summed over slices
  std::array<uint64_t, 2> signature = {};
  std::span<const Piece> src;
  std::span<const Piece> src2;
  std::span<const Piece> dst;
  bool is_result = false;  // written to the output and not read by a later step
  bool lendable = false;   // a send whose payload may be read in place
};

class BoundSteps {
 public:
  BoundSteps() = default;
  BoundSteps(const BoundSteps&) = delete;  // moves point into pieces
  BoundSteps& operator=(const BoundSteps&) = delete;
  BoundSteps(BoundSteps&&) = default;
  BoundSteps& operator=(BoundSteps&&) = default;

  struct Bytes {
    uint64_t element = 1;
    uint64_t accumulator = 0;  // bytes of an accumulator; 0: elements are accumulators
    uint64_t scratch_chunk = 0;
  };
  // Computes the moves. `private_blocks`: a message states its block's length, which only its two
  // ranks know.
  void make(const Plan& plan, const ChunkMap& chunks, const Bytes& bytes,
            const std::array<uint64_t, 2>& signature, bool private_blocks);

  const BoundStep& operator[](size_t step) const { return bound_steps_[step]; }
  size_t size() const { return bound_steps_.size(); }

 private:
  std::vector<BoundStep> bound_steps_;
  std::vector<Piece> pieces_;
};

}  // namespace tutti
