#include "collectives/execution.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti {

namespace {

// Chunks of a range list, one after the other.
class ChunkIterator {
 public:
  explicit ChunkIterator(const RangeList& ranges) : ranges_(ranges) {}
  bool more() const { return range_ < ranges_.size(); }
  Space space() const { return ranges_[range_].space; }
  int32_t chunk() const { return ranges_[range_].first + offset_; }
  void next() {
    if (++offset_ < ranges_[range_].count) return;
    offset_ = 0;
    ++range_;
  }

 private:
  const RangeList& ranges_;
  size_t range_ = 0;
  int32_t offset_ = 0;
};

bool is_one_chunk(const RangeList& ranges) { return ranges.size() == 1 && ranges[0].count == 1; }

}  // namespace

void Execution::start(const Call& call, Transport* transport, const Limits& limits) {
  call_ = call;
  transport_ = transport;
  unexpected_.reset();
  const Plan& plan = *call.plan;
  const Signature& signature = call.signature;
  signature_ = encode(signature);
  element_bytes_ = size_of(signature.dtype);
  kernel_ = supports(signature.op, signature.dtype) ? reduce_kernel(signature.dtype, signature.op)
                                                    : nullptr;
  chunks_ = ChunkMap(plan, signature.count, element_bytes_);

  const int fan_out = std::max(1, plan.program.fan_out);
  const int lanes = call.point_to_point ? 1 : std::clamp(limits.slots / fan_out, 1, limits.lanes);
  credit_ = call.point_to_point ? 2 : std::max(1, limits.slots / (fan_out * lanes));
  slice_elements_ =
      slice_size(call.point_to_point ? limits.p2p_message_bytes : limits.message_bytes, lanes);
  const uint64_t slices = (chunks_.largest() + slice_elements_ - 1) / slice_elements_;
  // These have something to say without data.
  const bool has_tokens =
      plan.collective == Collective::barrier || (call.point_to_point && signature.count == 0);
  reset_lanes(lanes, static_cast<uint32_t>(has_tokens ? 1 : slices));
  scratch_chunk_bytes_ = std::min(slice_elements_, chunks_.largest()) * element_bytes_;
  scratch_.resize(scratch_chunk_bytes_ * plan.program.scratch_chunks * kWindow * lanes_.size());
}

// Elements of a slice: as many as a message holds, but few enough to keep every lane busy, and not
// so few that messages cost more than their bytes. A function of what all ranks know alike.
uint64_t Execution::slice_size(size_t message_bytes, int lanes) const {
  constexpr uint64_t kLeastBytes = 16 << 10;
  const uint64_t line = std::max<uint64_t>(1, 64 / element_bytes_);
  const uint64_t chunks = std::max(1, call_.plan->program.chunks_per_message);
  const uint64_t most =
      std::max(message_bytes / (chunks * element_bytes_) / line * line, uint64_t{1});
  const uint64_t least =
      std::min(kLeastBytes / (chunks * element_bytes_) / line * line + line, most);
  const uint64_t even = (chunks_.largest() + lanes - 1) / lanes;
  return std::clamp((even + line - 1) / line * line, least, most);
}

void Execution::reset_lanes(int most, uint32_t slices) {
  const Plan& plan = *call_.plan;
  const auto count = std::clamp<uint32_t>(slices, 1, most);
  lanes_.resize(count);
  lanes_done_ = 0;
  for (uint32_t i = 0; i < count; ++i) {
    Lane& lane = lanes_[i];
    lane.turns = plan.program.steps.empty() ? 0 : slices / count + (i < slices % count ? 1 : 0);
    lane.oldest = 0;
    lane.cursors.assign(plan.queues.size(), {});
    lane.done.assign(static_cast<size_t>(kWindow) * plan.words, 0);
    if (lane.turns == 0) ++lanes_done_;
  }
}

bool Execution::progress() {
  bool moved = false;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    if (lane.oldest == lane.turns) continue;
    for (size_t queue = 0; queue < lane.cursors.size(); ++queue) {
      moved |= progress_queue(lane, static_cast<int>(i), queue);
      if (unexpected_) return moved;
    }
    if (lane.oldest == lane.turns) ++lanes_done_;
  }
  return moved;
}

bool Execution::progress_queue(Lane& lane, int number, size_t queue) {
  const Plan::Queue& q = call_.plan->queues[queue];
  bool moved = false;
  while (true) {
    const Cursor cursor = lane.cursors[queue];
    if (cursor.turn == lane.turns || cursor.turn >= lane.oldest + kWindow) return moved;
    const int32_t step = q.steps[cursor.index];
    const std::vector<int32_t>& shared = call_.plan->send_queues[step];
    if (!shared.empty() &&
        (shared[0] != static_cast<int32_t>(queue) || !others_arrived(lane, cursor, step))) {
      return moved;
    }
    if (!ready(lane, cursor, step) || !run(number, cursor.turn, step)) return moved;
    if (shared.empty()) advance(lane, queue);
    for (const int32_t other : shared) advance(lane, other);
    finish_step(lane, cursor.turn, step);
    moved = true;
  }
}

bool Execution::ready(const Lane& lane, const Cursor& cursor, int32_t step) const {
  const Plan& plan = *call_.plan;
  const uint64_t* needs = plan.needs_of(step);
  const uint64_t* done = &lane.done[static_cast<size_t>(cursor.turn % kWindow) * plan.words];
  for (int32_t word = 0; word < plan.words; ++word) {
    if ((needs[word] & ~done[word]) != 0) return false;
  }
  return true;
}

// A send to several peers goes when it is the next one to each of them.
bool Execution::others_arrived(const Lane& lane, const Cursor& cursor, int32_t step) const {
  return std::ranges::all_of(call_.plan->send_queues[step], [&](int32_t queue) {
    const Cursor& other = lane.cursors[queue];
    return other.turn == cursor.turn && call_.plan->queues[queue].steps[other.index] == step;
  });
}

void Execution::advance(Lane& lane, size_t queue) {
  Cursor& cursor = lane.cursors[queue];
  if (++cursor.index == call_.plan->queues[queue].steps.size()) cursor = {cursor.turn + 1, 0};
}

void Execution::finish_step(Lane& lane, uint32_t turn, int32_t step) {
  const Plan& plan = *call_.plan;
  uint64_t* done = &lane.done[static_cast<size_t>(turn % kWindow) * plan.words];
  done[step / 64] |= uint64_t{1} << (step % 64);
  while (lane.oldest < lane.turns) {
    uint64_t* oldest = &lane.done[static_cast<size_t>(lane.oldest % kWindow) * plan.words];
    if (!std::equal(plan.all.begin(), plan.all.end(), oldest)) return;
    std::fill_n(oldest, plan.words, 0);
    ++lane.oldest;
  }
}

uint64_t Execution::slice_bytes(int32_t chunk, uint32_t slice) const {
  const uint64_t length = chunks_.length(chunk);
  const uint64_t start = slice * slice_elements_;
  return start >= length ? 0 : std::min(slice_elements_, length - start) * element_bytes_;
}

uint64_t Execution::message_bytes(const RangeList& ranges, uint32_t slice) const {
  uint64_t bytes = 0;
  for (ChunkIterator i(ranges); i.more(); i.next()) bytes += slice_bytes(i.chunk(), slice);
  return bytes;
}

std::byte* Execution::address(Space space, int32_t chunk, int lane, uint32_t turn) const {
  if (space == Space::scratch) {
    const uint64_t set = static_cast<uint64_t>(lane) * kWindow + turn % kWindow;
    const uint64_t index = set * call_.plan->program.scratch_chunks + chunk;
    return const_cast<std::byte*>(scratch_.data()) + index * scratch_chunk_bytes_;
  }
  const uint64_t element = chunks_.offset(chunk) + slice_of(lane, turn) * slice_elements_;
  const std::byte* base = space == Space::input ? call_.input : call_.output;
  // Programs never write to input; verify checks that.
  return const_cast<std::byte*>(base) + element * element_bytes_;
}

bool Execution::run(int lane, uint32_t turn, int32_t number) {
  const Step& step = call_.plan->program.steps[number];
  switch (step.kind) {
    case StepKind::send:
      return run_send(lane, turn, number, step);
    case StepKind::recv:
    case StepKind::recv_reduce:
      return run_recv(lane, turn, step);
    case StepKind::reduce:
      combine(lane, turn, step.src, step.src2, step.dst, nullptr, false);
      return true;
    case StepKind::copy: {
      ChunkIterator to(step.dst);
      for (ChunkIterator from(step.src); from.more(); from.next(), to.next()) {
        std::byte* const dst = address(to.space(), to.chunk(), lane, turn);
        const std::byte* const src = address(from.space(), from.chunk(), lane, turn);
        const uint64_t bytes = slice_bytes(to.chunk(), slice_of(lane, turn));
        if (dst != src && bytes > 0) std::memcpy(dst, src, bytes);
      }
      return true;
    }
  }
  return true;
}

bool Execution::run_send(int lane, uint32_t turn, int32_t number, const Step& step) {
  const uint32_t slice = slice_of(lane, turn);
  const uint64_t bytes = message_bytes(step.src, slice);
  if (bytes == 0 && !step.src.empty() && !call_.point_to_point) return true;
  const MessageHeader header{.call = call_.number,
                             .slice = slice,
                             .step = static_cast<uint32_t>(number),
                             .bytes = static_cast<uint32_t>(bytes),
                             .signature = signature_};
  const int wire_lane = transport_lane(lane);
  if (step.peers.size() == 1 && is_one_chunk(step.src)) {
    const std::byte* const src = address(step.src[0].space, step.src[0].first, lane, turn);
    return transport_->write(step.peers[0], wire_lane, header, {src, bytes}, credit_);
  }
  std::byte* slot = transport_->reserve(step.peers, wire_lane, bytes, credit_);
  if (slot == nullptr) return false;
  for (ChunkIterator from(step.src); from.more(); from.next()) {
    const uint64_t length = slice_bytes(from.chunk(), slice);
    if (length > 0) std::memcpy(slot, address(from.space(), from.chunk(), lane, turn), length);
    slot += length;
  }
  transport_->commit(header);
  return true;
}

bool Execution::run_recv(int lane, uint32_t turn, const Step& step) {
  const uint32_t slice = slice_of(lane, turn);
  const uint64_t bytes = message_bytes(step.dst, slice);
  if (bytes == 0 && !step.dst.empty() && !call_.point_to_point) return true;
  const int peer = step.peers[0];
  const int wire_lane = transport_lane(lane);
  const MessageHeader* header = transport_->front(peer, wire_lane);
  if (header == nullptr) return false;
  if (header->call != call_.number || header->signature != signature_ || header->slice != slice ||
      header->bytes != bytes) {
    unexpected_ = Unexpected{peer, *header, slice, static_cast<uint32_t>(bytes)};
    return false;
  }
  if (step.kind == StepKind::recv && is_one_chunk(step.dst)) {
    std::byte* const dst = address(step.dst[0].space, step.dst[0].first, lane, turn);
    if (!transport_->read(peer, wire_lane, {dst, bytes})) return false;
  } else if (bytes > 0) {
    const std::byte* received = transport_->payload(peer, wire_lane);
    if (received == nullptr) return false;
    combine(lane, turn, step.src, {}, step.dst, received, step.received_on_left);
  }
  transport_->release(peer, wire_lane);
  return true;
}

// dst = a op b, or with a message: dst = a op received, received op a, or (a empty) received.
void Execution::combine(int lane, uint32_t turn, const RangeList& a, const RangeList& b,
                        const RangeList& dst, const std::byte* received, bool received_on_left) {
  const uint32_t slice = slice_of(lane, turn);
  ChunkIterator left(a);
  ChunkIterator right(b);
  for (ChunkIterator to(dst); to.more(); to.next()) {
    const uint64_t bytes = slice_bytes(to.chunk(), slice);
    std::byte* const target = address(to.space(), to.chunk(), lane, turn);
    if (bytes > 0 && a.empty()) {
      std::memcpy(target, received, bytes);
    } else if (bytes > 0) {
      const std::byte* x = address(left.space(), left.chunk(), lane, turn);
      const std::byte* y =
          received != nullptr ? received : address(right.space(), right.chunk(), lane, turn);
      if (received_on_left) std::swap(x, y);
      kernel_(target, x, y, bytes / element_bytes_);
    }
    if (!a.empty()) left.next();
    if (!b.empty()) right.next();
    if (received != nullptr) received += bytes;
  }
}

std::vector<int> Execution::waiting_for() const {
  std::vector<int> peers;
  for (const Lane& lane : lanes_) {
    for (size_t queue = 0; queue < lane.cursors.size(); ++queue) {
      const Cursor& cursor = lane.cursors[queue];
      const Plan::Queue& q = call_.plan->queues[queue];
      if (q.peer < 0 || cursor.turn == lane.turns || cursor.turn >= lane.oldest + kWindow) continue;
      if (!ready(lane, cursor, q.steps[cursor.index])) continue;
      if (std::ranges::find(peers, q.peer) == peers.end()) peers.push_back(q.peer);
    }
  }
  std::ranges::sort(peers);
  return peers;
}

}  // namespace tutti
