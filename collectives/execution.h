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
#include <optional>
#include <vector>

#include "base/buffer.h"
#include "base/reduce.h"
#include "collectives/chunk_map.h"
#include "collectives/plan.h"
#include "collectives/signature.h"
#include "transport/transport.h"

namespace tutti {

// What all ranks of a communicator agree on, whatever their own transports could do beyond it.
struct Limits {
  int lanes = 1;
  int slots = 1;
  size_t message_bytes = 0;
  size_t p2p_message_bytes = 0;
};

// A call as the executor sees it.
struct Call {
  const Plan* plan = nullptr;
  Signature signature;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  uint32_t number = 0;
  bool point_to_point = false;
};

// A message that does not belong to the call at its place.
struct Unexpected {
  int peer = 0;
  MessageHeader header;
  uint32_t slice = 0;
  uint32_t bytes = 0;
};

class Execution {
 public:
  // `transport` may be null when the program does not communicate.
  void start(const Call& call, Transport* transport, const Limits& limits);
  // True if anything moved.
  bool progress();
  bool done() const { return lanes_done_ == lanes_.size(); }
  const std::optional<Unexpected>& unexpected() const { return unexpected_; }
  // The peers whose message, or room for whose message, is waited for.
  std::vector<int> waiting_for() const;

 private:
  struct Cursor {
    uint32_t turn = 0;   // the how-manieth slice of the lane
    uint32_t index = 0;  // into the queue's steps
  };
  struct Lane {
    uint32_t turns = 0;   // slices in all
    uint32_t oldest = 0;  // first slice that is not complete
    std::vector<Cursor> cursors;
    std::vector<uint64_t> done;  // kWindow bit sets over steps
  };
  static constexpr uint32_t kWindow = 4;

  uint64_t slice_size(size_t message_bytes, int lanes) const;
  void reset_lanes(int most, uint32_t slices);
  bool progress_queue(Lane& lane, int number, size_t queue);
  bool ready(const Lane& lane, const Cursor& cursor, int32_t step) const;
  bool others_arrived(const Lane& lane, const Cursor& cursor, int32_t step) const;
  bool run(int lane, uint32_t turn, int32_t step);
  void finish_step(Lane& lane, uint32_t turn, int32_t step);
  void advance(Lane& lane, size_t queue);

  bool run_send(int lane, uint32_t turn, int32_t number, const Step& step);
  bool run_recv(int lane, uint32_t turn, const Step& step);
  void combine(int lane, uint32_t turn, const RangeList& a, const RangeList& b,
               const RangeList& dst, const std::byte* received, bool received_on_left);

  uint32_t slice_of(int lane, uint32_t turn) const {
    return turn * static_cast<uint32_t>(lanes_.size()) + static_cast<uint32_t>(lane);
  }
  uint64_t slice_bytes(int32_t chunk, uint32_t slice) const;
  uint64_t message_bytes(const RangeList& ranges, uint32_t slice) const;
  std::byte* address(Space space, int32_t chunk, int lane, uint32_t turn) const;
  int transport_lane(int lane) const { return call_.point_to_point ? transport_->lanes() : lane; }

  Call call_;
  Transport* transport_ = nullptr;
  ReduceKernel kernel_ = nullptr;
  std::array<uint64_t, 2> signature_ = {};
  ChunkMap chunks_;
  uint64_t element_bytes_ = 1;
  uint64_t slice_elements_ = 0;
  int credit_ = 1;
  std::vector<Lane> lanes_;
  size_t lanes_done_ = 0;
  std::vector<std::byte> scratch_;
  uint64_t scratch_chunk_bytes_ = 0;
  std::optional<Unexpected> unexpected_;
};

}  // namespace tutti
