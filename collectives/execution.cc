#include "collectives/execution.h"

#include <algorithm>
#include <cstring>

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

// Where memcmp would be called for two words.
bool same(const std::array<uint64_t, 2>& a, const std::array<uint64_t, 2>& b) {
  return a[0] == b[0] && a[1] == b[1];
}

bool is_one_chunk(const RangeList& ranges) { return ranges.size() == 1 && ranges[0].count == 1; }

}  // namespace

void Execution::start(const Call& call, Transport* transport) {
  call_ = &call;
  outline_ = call.outline;
  plan_ = outline_->plan;
  transport_ = transport;
  unexpected_.reset();
  reset_lanes();
  if (plan_->program.scratch_chunks == 0) return;
  scratch_chunk_bytes_ = std::min(outline_->slicing.elements, outline_->chunks.largest()) *
                         width(outline_->accumulates);
  const uint64_t scratch =
      scratch_chunk_bytes_ * plan_->program.scratch_chunks * kWindow * lanes_.size();
  if (scratch_bytes_ < scratch) {
    scratch_.reset();
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(scratch);
    scratch_bytes_ = scratch;
  }
}

void Execution::reset_lanes() {
  const auto steps = static_cast<uint32_t>(plan_->program.steps.size());
  const uint32_t slices = outline_->slicing.slices;
  const auto count = static_cast<uint32_t>(outline_->slicing.lanes);
  lanes_.resize(count);
  lanes_done_ = 0;
  for (uint32_t i = 0; i < count; ++i) {
    Lane& lane = lanes_[i];
    lane.turns = steps == 0 ? 0 : slices / count + (i < slices % count ? 1 : 0);
    lane.oldest = 0;
    lane.cursors.assign(plan_->queues.size(), {});
    lane.done.assign(static_cast<size_t>(kWindow) * steps, 0);
    lane.left.fill(steps);
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
  const Plan::Queue& q = plan_->queues[queue];
  bool moved = false;
  while (true) {
    const Cursor cursor = lane.cursors[queue];
    if (cursor.turn == lane.turns || cursor.turn >= lane.oldest + kWindow) return moved;
    const int32_t step = q.steps[cursor.index];
    const std::vector<int32_t>& shared = plan_->send_queues[step];
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
    const uint8_t* done = &lane.done[(cursor.turn % kWindow) * plan_->program.steps.size()];
  return std::ranges::all_of(plan_->needs_of(step), [&](int32_t need) { return done[need] != 0; });
}

// A send to several peers goes when it is the next one to each of them.
bool Execution::others_arrived(const Lane& lane, const Cursor& cursor, int32_t step) const {
  return std::ranges::all_of(plan_->send_queues[step], [&](int32_t queue) {
    const Cursor& other = lane.cursors[queue];
    return other.turn == cursor.turn && plan_->queues[queue].steps[other.index] == step;
  });
}

void Execution::advance(Lane& lane, size_t queue) {
  Cursor& cursor = lane.cursors[queue];
  if (++cursor.index == plan_->queues[queue].steps.size()) cursor = {cursor.turn + 1, 0};
}

void Execution::finish_step(Lane& lane, uint32_t turn, int32_t step) {
  const auto steps = static_cast<uint32_t>(plan_->program.steps.size());
  lane.done[static_cast<size_t>(turn % kWindow) * steps + step] = 1;
  --lane.left[turn % kWindow];
  while (lane.oldest < lane.turns && lane.left[lane.oldest % kWindow] == 0) {
    const size_t slot = lane.oldest % kWindow;
    std::fill_n(lane.done.begin() + static_cast<ptrdiff_t>(slot * steps), steps, 0);
    lane.left[slot] = steps;
    ++lane.oldest;
  }
}

// ---- where things lie

uint64_t Execution::slice_elements(Space space, int32_t chunk, uint32_t slice) const {
  const uint64_t length = outline_->chunks.at(space, chunk).length;
  const uint64_t start = slice * outline_->slicing.elements;
  return start >= length ? 0 : std::min(outline_->slicing.elements, length - start);
}

uint64_t Execution::message_elements(const RangeList& ranges, uint32_t slice) const {
  uint64_t elements = 0;
  for (ChunkIterator i(ranges); i.more(); i.next()) {
    elements += slice_elements(i.space(), i.chunk(), slice);
  }
  return elements;
}

// Messages without data are not sent; but tokens are, and where only the two ranks know how long a
// block is, they tell each other in slice 0, as point-to-point calls do.
bool Execution::is_silent(uint64_t elements, const RangeList& ranges, uint32_t slice) const {
  if (elements > 0 || ranges.empty()) return false;
  return !outline_->point_to_point() && (!outline_->private_blocks || slice > 0);
}

// Where each rank knows its own blocks only, a message says how long its block is.
std::array<uint64_t, 2> Execution::signature_of(const RangeList& ranges) const {
  if (!outline_->private_blocks) return outline_->signature_words;
  uint64_t elements = 0;
  for (ChunkIterator i(ranges); i.more(); i.next())
    elements += outline_->chunks.at(i.space(), i.chunk()).length;
  return {outline_->signature_words[0], elements};
}

std::byte* Execution::address(Space space, int32_t chunk, int lane, uint32_t turn) const {
  if (space == Space::scratch) {
    const uint64_t set = static_cast<uint64_t>(lane) * kWindow + turn % kWindow;
    const uint64_t index = set * plan_->program.scratch_chunks + chunk;
    return scratch_.get() + index * scratch_chunk_bytes_;
  }
  const uint64_t element =
      outline_->chunks.at(space, chunk).offset + slice_of(lane, turn) * outline_->slicing.elements;
  const std::byte* base = space == Space::input ? call_->input : call_->output;
  // Programs never write to input; verify checks that.
  return const_cast<std::byte*>(base) + element * outline_->element_bytes;
}

// ---- steps

bool Execution::run(int lane, uint32_t turn, int32_t number) {
  const Step& step = plan_->program.steps[number];
  switch (step.kind) {
    case StepKind::send:
      return run_send(lane, turn, number, step);
    case StepKind::recv:
    case StepKind::recv_reduce:
      return run_recv(lane, turn, step);
    case StepKind::reduce:
      run_reduce(lane, turn, step);
      return true;
    case StepKind::copy:
      run_copy(lane, turn, step);
      return true;
  }
  return true;
}

bool Execution::run_send(int lane, uint32_t turn, int32_t number, const Step& step) {
  const uint32_t slice = slice_of(lane, turn);
  const uint64_t elements = message_elements(step.src, slice);
  if (is_silent(elements, step.src, slice)) return true;
  const bool widened = is_accumulator(step.wire);
  const uint64_t bytes = elements * width(widened);
  const MessageHeader header{.call = call_->number,
                             .slice = slice,
                             .step = static_cast<uint32_t>(number),
                             .bytes = static_cast<uint32_t>(bytes),
                             .signature = signature_of(step.src)};
  const int wire_lane = transport_lane(lane);
  if (step.peers.size() == 1 && is_one_chunk(step.src) &&
      is_accumulator(step.src[0].space) == widened) {
    const std::byte* const src = address(step.src[0].space, step.src[0].first, lane, turn);
    return transport_->write(step.peers[0], wire_lane, header, {src, bytes}, outline_->slicing.credit);
  }
  std::byte* slot = transport_->reserve(step.peers, wire_lane, bytes, outline_->slicing.credit);
  if (slot == nullptr) return false;
  for (ChunkIterator from(step.src); from.more(); from.next()) {
    const uint64_t count = slice_elements(from.space(), from.chunk(), slice);
    if (count == 0) continue;
    convert(slot, widened, address(from.space(), from.chunk(), lane, turn),
            is_accumulator(from.space()), count);
    slot += count * width(widened);
  }
  transport_->commit(header);
  return true;
}

bool Execution::run_recv(int lane, uint32_t turn, const Step& step) {
  const uint32_t slice = slice_of(lane, turn);
  const uint64_t elements = message_elements(step.dst, slice);
  if (is_silent(elements, step.dst, slice)) return true;
  const bool widened = is_accumulator(step.wire);
  const uint64_t bytes = elements * width(widened);
  const int peer = step.peers[0];
  const int wire_lane = transport_lane(lane);
  const MessageHeader* header = transport_->front(peer, wire_lane);
  if (header == nullptr) return false;
  if (header->call != call_->number || !same(header->signature, signature_of(step.dst)) ||
      header->slice != slice || header->bytes != bytes) {
    unexpected_ = Unexpected{peer, *header, decode(signature_of(step.dst)), slice,
                             static_cast<uint32_t>(bytes)};
    return false;
  }
  if (step.kind == StepKind::recv && is_one_chunk(step.dst) &&
      is_accumulator(step.dst[0].space) == widened) {
    std::byte* const dst = address(step.dst[0].space, step.dst[0].first, lane, turn);
    if (!transport_->read(peer, wire_lane, {dst, bytes})) return false;
  } else if (bytes > 0) {
    const std::byte* received = transport_->payload(peer, wire_lane);
    if (received == nullptr) return false;
    take(lane, turn, step, received);
  }
  transport_->release(peer, wire_lane);
  return true;
}

// dst = received, received op src, or src op received.
void Execution::take(int lane, uint32_t turn, const Step& step, const std::byte* received) {
  const uint32_t slice = slice_of(lane, turn);
  const bool widened = is_accumulator(step.wire);
  ChunkIterator from(step.src);
  for (ChunkIterator to(step.dst); to.more(); to.next()) {
    const uint64_t count = slice_elements(to.space(), to.chunk(), slice);
    if (count > 0) {
      std::byte* const dst = address(to.space(), to.chunk(), lane, turn);
      const bool to_accumulator = is_accumulator(to.space());
      if (step.kind == StepKind::recv) {
        convert(dst, to_accumulator, received, widened, count);
      } else {
        const std::byte* const own = address(from.space(), from.chunk(), lane, turn);
        const bool own_widened = is_accumulator(from.space());
        if (step.received_on_left) {
          combine(dst, received, own, count, {to_accumulator, widened, own_widened});
        } else {
          combine(dst, own, received, count, {to_accumulator, own_widened, widened});
        }
      }
      received += count * width(widened);
    }
    if (step.kind == StepKind::recv_reduce) from.next();
  }
}

void Execution::run_reduce(int lane, uint32_t turn, const Step& step) {
  ChunkIterator a(step.src);
  ChunkIterator b(step.src2);
  for (ChunkIterator to(step.dst); to.more(); to.next(), a.next(), b.next()) {
    const uint64_t count = slice_elements(to.space(), to.chunk(), slice_of(lane, turn));
    if (count == 0) continue;
    combine(address(to.space(), to.chunk(), lane, turn), address(a.space(), a.chunk(), lane, turn),
            address(b.space(), b.chunk(), lane, turn), count,
            {is_accumulator(to.space()), is_accumulator(a.space()), is_accumulator(b.space())});
  }
}

void Execution::run_copy(int lane, uint32_t turn, const Step& step) {
  ChunkIterator from(step.src);
  for (ChunkIterator to(step.dst); to.more(); to.next(), from.next()) {
    const uint64_t count = slice_elements(to.space(), to.chunk(), slice_of(lane, turn));
    std::byte* const dst = address(to.space(), to.chunk(), lane, turn);
    const std::byte* const src = address(from.space(), from.chunk(), lane, turn);
    if (count == 0 || dst == src) continue;
    convert(dst, is_accumulator(to.space()), src, is_accumulator(from.space()), count);
  }
}

void Execution::combine(std::byte* dst, const std::byte* a, const std::byte* b, uint64_t count,
                        Formats formats) const {
  if (outline_->kernel != nullptr) {
    outline_->kernel(dst, a, b, count, formats);
  } else {
    outline_->reduction.function->combine(dst, a, b, count, outline_->dtype);
  }
}

void Execution::convert(std::byte* dst, bool to_accumulator, const std::byte* src,
                        bool from_accumulator, uint64_t count) const {
  if (to_accumulator == from_accumulator) {
    std::memcpy(dst, src, count * width(to_accumulator));
  } else if (to_accumulator) {
    widen(dst, src, count, outline_->dtype);
  } else {
    narrow(dst, src, count, outline_->dtype);
  }
}

std::vector<int> Execution::waiting_for() const {
  std::vector<int> peers;
  for (const Lane& lane : lanes_) {
    for (size_t queue = 0; queue < lane.cursors.size(); ++queue) {
      const Cursor& cursor = lane.cursors[queue];
      const Plan::Queue& q = plan_->queues[queue];
      if (q.peer < 0 || cursor.turn == lane.turns || cursor.turn >= lane.oldest + kWindow) continue;
      if (!ready(lane, cursor, q.steps[cursor.index])) continue;
      if (std::ranges::find(peers, q.peer) == peers.end()) peers.push_back(q.peer);
    }
  }
  std::ranges::sort(peers);
  return peers;
}

}  // namespace tutti
