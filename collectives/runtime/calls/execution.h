// Runs one call's program on this rank, for buffers in host memory.
//
// The call is divided into slices, and slice s runs on lane s mod L; lanes are independent. Within
// a lane the queues of the plan progress independently, slice after slice (queue_walk.h):
//
//            slice 0   slice 1   slice 2
//   recv ←1  [r0 r1]   [r0 r1]   [r0 ...
//   send →1  [s0 s1]   [s0 ...            queues keep their order, but overtake each other
//   local    [c]       [c]
//
// Older slices never wait for younger ones, so what `tutti verify` proves for one slice holds for
// all slices.
//
// A long point-to-point message whose buffer the receiver can access is sent by rendezvous: one
// message names the buffer, and the receiver reads the buffer when it reaches its receive. So a
// sender that is busy computing does not delay the receiver. All other messages are sent in slices
// (eager). The first message shows which of the two methods the sender has chosen.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/program/queue_walk.h"
#include "collectives/runtime/calls/compiled_call.h"
#include "collectives/runtime/calls/exchange.h"
#include "transport/transport.h"

namespace tutti {

namespace internal {
struct Operation;
}

// The peer that a step waits for. The step waits for a message from the peer or, if `sends`, until
// the peer takes one.
struct AwaitedPeer {
  int peer = 0;
  int lane = 0;  // lane of the transport
  bool sends = false;
};

// A message that differs from the one that a step expects. `expected`, `slice` and `bytes` describe
// the expected message.
struct Unexpected {
  int peer = 0;
  MessageHeader header;
  Signature expected;
  uint32_t slice = 0;
  uint32_t bytes = 0;
};

class Execution {
 public:
  // Starts the program. The operation must outlive the execution. `transport` may be null if the
  // program does not communicate. received[p] counts the bytes that arrive from rank p; only
  // executions of this communicator write these counters.
  void start(const internal::Operation& operation, Transport* transport,
             std::atomic<uint64_t>* received);
  // Returns true if any step progressed.
  bool progress();
  bool done() const { return std::ranges::all_of(lanes_, &QueueWalk::ended); }
  const std::optional<Unexpected>& unexpected() const { return unexpected_; }
  std::vector<AwaitedPeer> awaited_peers() const;
  // Returns the messages exchanged so far, by peer and lane.
  std::vector<Exchange> exchanges() const;

 private:
  // One slice: its index in the call, and the offset of its data from the start of each piece.
  struct Slice {
    uint32_t number = 0;
    int lane = 0;                     // lane of the transport
    uint64_t first = 0;               // first element within each chunk
    std::array<uint64_t, 3> shift{};  // offset in bytes, by space
  };

  // Form of a point-to-point message. `unknown`: the sender has not announced the form yet.
  enum class Form : uint8_t { slices, whole, unknown };
  struct Loan {
    int number = 0;  // the transport's ID of the loan
    int lane = 0;
    uint32_t turn = 0;
    int32_t step = 0;
  };

  void cut_into(uint32_t slices, int lanes);
  bool take_back();
  bool can_send_whole() const;
  void go_whole();
  bool know_form();
  int transport_lane(int lane) const {
    return compiled_->point_to_point() ? transport_->lanes() : lane;
  }
  Slice slice_at(int lane, uint32_t turn) const {
    if (lane == 0 && turn == 0) return {.lane = transport_lane(0)};
    return later_slice_at(lane, turn);
  }
  Slice later_slice_at(int lane, uint32_t turn) const;

  Attempt run(const Slice& slice, size_t step);
  Attempt run_send(const Slice& slice, size_t step);
  bool run_recv(const Slice& slice, const BoundStep& bound);
  void run_reduce(const Slice& slice, const BoundStep& bound);
  void run_copy(const Slice& slice, const BoundStep& bound);
  void take(const Slice& slice, const BoundStep& bound, const std::byte* received);
  struct Operand {
    const std::byte* at = nullptr;
    bool widened = false;  // true: accumulators
    bool scales = false;
  };
  struct Operands {
    std::byte* dst = nullptr;
    bool widened = false;
    Operand a;
    Operand b;  // null address: there is one operand only, and dst = a
    uint64_t count = 0;
    ptrdiff_t received = -1;  // offset in the message; -1: not a message
  };
  Operand operand(const Slice& slice, const Piece& piece) const {
    return {address(slice, piece), piece.widened, piece.scales};
  }
  // Computes dst = a op b, or dst = a, including scaling, division and conversion.
  void compute(const Slice& slice, const BoundStep& bound, const Operands& at);
  // Computes what compute() does, block by block. Each block of a message is returned to the sender
  // while it is in the L1 cache.
  void compute_blocks(const Slice& slice, const BoundStep& bound, Operands at);
  void compute_block(std::byte* dst, const Operands& at, uint64_t count, bool divides) const;
  void combine(std::byte* dst, const std::byte* a, const std::byte* b, uint64_t count,
               Formats formats) const {
    if (compiled_->kernel != nullptr) return compiled_->kernel(dst, a, b, count, formats);
    compiled_->reduction.function->combine(dst, a, b, count * compiled_->width, compiled_->dtype);
  }
  void convert(std::byte* dst, bool to_accumulator, const std::byte* src, bool from_accumulator,
               uint64_t count) const;

  uint64_t elements_in(const Slice& slice, const Piece& piece) const;
  uint64_t elements_in(const Slice& slice, std::span<const Piece> message) const;
  uint64_t message_elements(const Slice& slice, const BoundStep& bound,
                            std::span<const Piece> message) const {
    const bool whole = form_ == Form::whole || compiled_->slicing.slices <= 1;
    return whole ? bound.elements : elements_in(slice, message);
  }
  bool is_silent(uint64_t elements, std::span<const Piece> message, const Slice& slice) const;
  uint64_t width(bool accumulator) const {
    return accumulator ? compiled_->accumulator_bytes : compiled_->element_bytes;
  }
  std::byte* address(const Slice& slice, const Piece& piece) const {
    const auto space = static_cast<size_t>(piece.space);
    return base_[space] + piece.offset + slice.shift[space];
  }

  const internal::Operation* operation_ = nullptr;
  const CompiledCall* compiled_ = nullptr;  // the operation's compiled call
  const Plan* plan_ = nullptr;              // the compiled call's plan
  Transport* transport_ = nullptr;
  std::atomic<uint64_t>* received_ = nullptr;
  std::array<std::byte*, 3> base_ = {};  // by space; programs never write to the input
  std::optional<Unexpected> unexpected_;

  Form form_ = Form::slices;
  std::vector<Loan> loans_;
  std::vector<QueueWalk> lanes_;  // walks of the lanes; a turn is a slice

  // Scratch memory. It is not zeroed: programs declare more scratch chunks than each rank uses, and
  // untouched pages cost nothing.
  std::unique_ptr<std::byte[]> scratch_;
  uint64_t scratch_bytes_ = 0;
};

}  // namespace tutti
