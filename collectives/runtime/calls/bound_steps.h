// A plan applied to one kind of call: the location and length of the data of each step. They are
// computed once instead of in every call and for every slice.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/program/chunk_map.h"
#include "collectives/program/plan.h"

namespace tutti {

// Location of a chunk in its buffer. If the call has accumulators, scratch chunks hold accumulators
// instead of elements.
struct Piece {
  Space space = Space::input;
  bool widened = false;  // true: accumulators, not elements
  bool scales = false;   // true: scaled when read
  uint64_t offset = 0;   // in bytes
  uint64_t length = 0;   // in elements
};

// Least size of a lent message: below it, a copy is faster than lending and waiting for the return.
inline constexpr uint64_t kLeastLent = 4 << 10;  // in bytes

struct BoundStep {
  StepKind kind = StepKind::copy;
  bool received_on_left = false;
  bool widened = false;    // true: the message carries accumulators
  bool one_piece = false;  // true: the message is one contiguous piece, and is not converted
  bool computes = false;   // true: scales or divides
  bool divides = false;
  int32_t peer = -1;  // first peer; -1: none
  std::span<const int32_t> peers;
  uint64_t elements = 0;  // message length in elements, summed over slices
  std::array<uint64_t, 2> signature = {};
  std::span<const Piece> src;
  std::span<const Piece> src2;
  std::span<const Piece> dst;
  bool is_result = false;  // true: writes to the output, and no later step needs this step
  bool lendable = false;   // true: a send whose payload may be read in place
};

class BoundSteps {
 public:
  BoundSteps() = default;
  BoundSteps(const BoundSteps&) = delete;  // bound_steps_ has spans into pieces_
  BoundSteps& operator=(const BoundSteps&) = delete;
  BoundSteps(BoundSteps&&) = default;
  BoundSteps& operator=(BoundSteps&&) = default;

  struct Bytes {
    uint64_t element = 1;
    uint64_t accumulator = 0;  // bytes of an accumulator; 0: sums have the element type
    uint64_t scratch_chunk = 0;
  };
  // Computes the steps. `private_blocks`: true if only the sender and the receiver of a message can
  // compute its length, so that the signature in the message's header must contain the length.
  void make(const Plan& plan, const ChunkMap& chunks, const Bytes& bytes,
            const std::array<uint64_t, 2>& signature, bool private_blocks);

  const BoundStep& operator[](size_t step) const { return bound_steps_[step]; }
  size_t size() const { return bound_steps_.size(); }

 private:
  std::vector<BoundStep> bound_steps_;
  std::vector<Piece> pieces_;
};

}  // namespace tutti
