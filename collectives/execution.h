// Runs one call's program on this rank: the only reader of programs that moves bytes.
//
// The call is cut into slices, and slice s runs on lane s mod L; lanes are independent of each
// other. Within a lane the queues of the plan move independently, slice after slice, each step as
// soon as the steps it needs are done:
//
//            slice 0   slice 1   slice 2
//   recv ←1  [r0 r1]   [r0 r1]   [r0 ...
//   send →1  [s0 s1]   [s0 ...            a queue never overtakes itself, but others run ahead,
//   local    [c]       [c]                at most kWindow slices
//
// Older slices never wait for younger ones, so what verify proves of one slice holds for all.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/outline.h"
#include "transport/transport.h"

namespace tutti {

// A call as the executor sees it.
struct Call {
  const Outline* outline = nullptr;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  uint32_t number = 0;
};

// A message that does not belong to the call at its place.
struct Unexpected {
  int peer = 0;
  MessageHeader header;
  Signature expected;
  uint32_t slice = 0;
  uint32_t bytes = 0;
};

class Execution {
 public:
  // `transport` may be null when the program does not communicate. `call` must live until the end.
  void start(const Call& call, Transport* transport);
  // True if anything moved.
  bool progress();
  bool done() const { return lanes_done_ == lanes_.size(); }
  const std::optional<Unexpected>& unexpected() const { return unexpected_; }
  // The peers whose message, or room for whose message, is waited for.
  std::vector<int> waiting_for() const;

 private:
  static constexpr uint32_t kWindow = 4;

  struct Cursor {
    uint32_t turn = 0;   // the how-manieth slice of the lane
    uint32_t index = 0;  // into the queue's steps
  };
  struct Lane {
    uint32_t turns = 0;   // slices in all
    uint32_t oldest = 0;  // first slice that is not complete
    std::vector<Cursor> cursors;
    std::vector<uint8_t> done;                // by turn mod kWindow, then by step
    std::array<uint32_t, kWindow> left = {};  // steps that are not done, by turn mod kWindow
  };
  void reset_lanes();
  bool progress_queue(Lane& lane, int number, size_t queue);
  bool ready(const Lane& lane, const Cursor& cursor, int32_t step) const;
  bool others_arrived(const Lane& lane, const Cursor& cursor, int32_t step) const;
  bool run(int lane, uint32_t turn, int32_t step);
  void finish_step(Lane& lane, uint32_t turn, int32_t step);
  void advance(Lane& lane, size_t queue);

  bool run_send(int lane, uint32_t turn, int32_t number, const Step& step);
  bool run_recv(int lane, uint32_t turn, const Step& step);
  void run_reduce(int lane, uint32_t turn, const Step& step);
  void run_copy(int lane, uint32_t turn, const Step& step);
  void take(int lane, uint32_t turn, const Step& step, const std::byte* received);
  void combine(std::byte* dst, const std::byte* a, const std::byte* b, uint64_t count,
               Formats formats) const;
  void convert(std::byte* dst, bool to_accumulator, const std::byte* src, bool from_accumulator,
               uint64_t count) const;

  uint32_t slice_of(int lane, uint32_t turn) const {
    return turn * static_cast<uint32_t>(lanes_.size()) + static_cast<uint32_t>(lane);
  }
  // Scratch holds accumulators where there are any.
  bool is_accumulator(Space space) const { return outline_->accumulates && space == Space::scratch; }
  bool is_accumulator(Wire wire) const {
    return outline_->accumulates && wire == Wire::accumulator;
  }
  uint64_t width(bool accumulator) const {
    return accumulator ? sizeof(float) : outline_->element_bytes;
  }
  uint64_t slice_elements(Space space, int32_t chunk, uint32_t slice) const;
  uint64_t message_elements(const RangeList& ranges, uint32_t slice) const;
  bool is_silent(uint64_t elements, const RangeList& ranges, uint32_t slice) const;
  std::array<uint64_t, 2> signature_of(const RangeList& ranges) const;
  std::byte* address(Space space, int32_t chunk, int lane, uint32_t turn) const;
  int transport_lane(int lane) const {
    return outline_->point_to_point() ? transport_->lanes() : lane;
  }

  const Call* call_ = nullptr;
  const Outline* outline_ = nullptr;  // the call's
  const Plan* plan_ = nullptr;        // the outline's
  Transport* transport_ = nullptr;
  std::vector<Lane> lanes_;
  size_t lanes_done_ = 0;
  // Not cleared: programs declare more scratch chunks than each rank touches, and untouched pages
  // cost nothing.
  std::unique_ptr<std::byte[]> scratch_;
  uint64_t scratch_bytes_ = 0;
  uint64_t scratch_chunk_bytes_ = 0;
  std::optional<Unexpected> unexpected_;
};

}  // namespace tutti
