#include "collectives/runtime/calls/execution.h"

#include <algorithm>
#include <map>
#include <utility>

#include "collectives/runtime/calls/operation.h"

namespace tutti {

namespace {

// Compares the words without a call of memcmp.
bool same(const std::array<uint64_t, 2>& a, const std::array<uint64_t, 2>& b) {
  return a[0] == b[0] && a[1] == b[1];
}

}  // namespace

void Execution::start(const internal::Operation& operation, Transport* transport,
                      std::atomic<uint64_t>* received) {
  operation_ = &operation;
  compiled_ = &operation.running();
  plan_ = compiled_->plan;
  transport_ = transport;
  received_ = received;
  if (unexpected_) unexpected_.reset();
  loans_.clear();
  base_ = {const_cast<std::byte*>(operation.input), operation.output, nullptr};
  const Slicing& slicing = compiled_->slicing;
  form_ = Form::slices;
  uint64_t sets = 1;
  if (slicing.slices <= 1) {
    if (lanes_.size() != 1) lanes_.resize(1);
    lanes_[0].reset(*plan_, slicing.slices);
  } else {
    cut_into(slicing.slices, slicing.lanes);
    sets = QueueWalk::kWindow * lanes_.size();
    if (compiled_->point_to_point() && !compiled_->sends) form_ = Form::unknown;
    if (compiled_->point_to_point() && compiled_->sends && can_send_whole()) go_whole();
  }
  if (scratch_bytes_ < compiled_->scratch_bytes * sets) {
    scratch_.reset();
    scratch_bytes_ = compiled_->scratch_bytes * sets;
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(scratch_bytes_);
  }
  base_[static_cast<size_t>(Space::scratch)] = scratch_.get();
}

void Execution::cut_into(uint32_t slices, int lanes) {
  const auto count = static_cast<uint32_t>(lanes);
  lanes_.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    lanes_[i].reset(*plan_, slices / count + (i < slices % count ? 1 : 0));
  }
}

// ---- a point-to-point message as a whole

// Returns true if a message of several slices can be sent whole, which requires that it can be
// lent, because no slot holds a copy of all of it. Other messages, such as short ones, are sent in
// slices.
bool Execution::can_send_whole() const {
  const BoundStep& bound = compiled_->bound_steps[0];
  const uint64_t bytes = bound.elements * compiled_->element_bytes;
  return compiled_->lends && bound.lendable && bytes <= UINT32_MAX &&
         transport_->can_lend(bound.peers, {address(Slice{}, bound.src[0]), bytes});
}

void Execution::go_whole() {
  form_ = Form::whole;
  cut_into(1, 1);
}

// Determines whether the message is sent in slices or as a whole. On a receiver, returns false
// until the first message has arrived, which shows the sender's choice. A sender falls back to
// slices if its buffer's registration has ended.
bool Execution::know_form() {
  const BoundStep& bound = compiled_->bound_steps[0];
  if (compiled_->sends) {
    if (loans_.empty() && !done() && !can_send_whole()) {
      form_ = Form::slices;
      cut_into(compiled_->slicing.slices, compiled_->slicing.lanes);
    }
    return true;
  }
  if (form_ == Form::whole) return true;
  const MessageHeader* const first = transport_->front(bound.peer, transport_->lanes());
  if (first == nullptr) return false;
  form_ = Form::slices;
  if (first->bytes == bound.elements * compiled_->element_bytes) go_whole();
  return true;
}

// ---- lanes of slices

inline Attempt Execution::run(const Slice& slice, size_t step) {
  const BoundStep& bound = compiled_->bound_steps[step];
  switch (bound.kind) {
    case StepKind::send:
      return run_send(slice, step);
    case StepKind::recv:
    case StepKind::recv_reduce:
      return run_recv(slice, bound) ? Attempt::finished : Attempt::waits;
    case StepKind::reduce:
      run_reduce(slice, bound);
      break;
    case StepKind::copy:
      run_copy(slice, bound);
      break;
  }
  return Attempt::finished;
}

bool Execution::progress() {
  bool moved = !loans_.empty() && take_back();
  if (form_ != Form::slices && !know_form()) return moved;
  int lane = 0;
  for (QueueWalk& walk : lanes_) {
    Slice slice = slice_at(lane, 0);
    uint32_t at = 0;
    moved |= walk.progress([&](uint32_t turn, int32_t step) {
      if (turn != at) slice = slice_at(lane, at = turn);
      const Attempt result = run(slice, static_cast<size_t>(step));
      if (result == Attempt::begun) loans_.back() = {loans_.back().number, lane, turn, step};
      return result;
    });
    if (unexpected_) break;
    ++lane;
  }
  return moved;
}

bool Execution::take_back() {
  const auto is_back = [this](const Loan& loan) {
    if (!transport_->take_back(loan.number)) return false;
    lanes_[static_cast<size_t>(loan.lane)].finish(loan.turn, loan.step);
    return true;
  };
  return std::erase_if(loans_, is_back) > 0;
}

Execution::Slice Execution::later_slice_at(int lane, uint32_t turn) const {
  const uint32_t number = turn * static_cast<uint32_t>(lanes_.size()) + static_cast<uint32_t>(lane);
  const uint64_t first = number * compiled_->slicing.elements;
  const uint64_t shift = first * compiled_->element_bytes;
  const uint64_t set = static_cast<uint64_t>(lane) * QueueWalk::kWindow + turn % QueueWalk::kWindow;
  return {.number = number,
          .lane = transport_lane(lane),
          .first = first,
          .shift = {shift, shift, set * compiled_->scratch_bytes}};
}

// ---- steps

uint64_t Execution::elements_in(const Slice& slice, const Piece& piece) const {
  if (slice.first >= piece.length) return 0;
  return std::min(compiled_->slicing.elements, piece.length - slice.first);
}

uint64_t Execution::elements_in(const Slice& slice, std::span<const Piece> message) const {
  uint64_t elements = 0;
  for (const Piece& piece : message) elements += elements_in(slice, piece);
  return elements;
}

// Returns true if a message is not sent because it has no data. Tokens (messages without chunks)
// are always sent, as are all point-to-point messages. With private blocks slice 0 is always sent
// too, because its header carries the block's length.
bool Execution::is_silent(uint64_t elements, std::span<const Piece> message,
                          const Slice& slice) const {
  if (elements > 0 || message.empty()) return false;
  return !compiled_->point_to_point() && (!compiled_->private_blocks || slice.number > 0);
}

Attempt Execution::run_send(const Slice& slice, size_t step) {
  const BoundStep& bound = compiled_->bound_steps[step];
  const uint64_t elements = message_elements(slice, bound, bound.src);
  if (is_silent(elements, bound.src, slice)) return Attempt::finished;
  const uint64_t bytes = elements * width(bound.widened);
  const MessageHeader header{.call = operation_->number,
                             .slice = slice.number,
                             .step = static_cast<uint32_t>(step),
                             .bytes = static_cast<uint32_t>(bytes),
                             .signature = bound.signature};
  const int credit = compiled_->slicing.credit;
  if (bound.one_piece) {
    const std::span<const std::byte> payload(address(slice, bound.src[0]), bytes);
    if (bound.lendable && compiled_->lends && bytes >= kLeastLent) {
      if (transport_->can_lend(bound.peers, payload)) {
        const int loan = transport_->lend(bound.peers, slice.lane, header, payload);
        if (loan < 0) return Attempt::waits;
        loans_.push_back({.number = loan});
        return Attempt::begun;
      }
      if (form_ == Form::whole) return Attempt::waits;  // the registration ended; see know_form()
    }
    if (bound.peers.size() == 1) {
      const bool sent = transport_->write(bound.peer, slice.lane, header, payload, credit);
      return sent ? Attempt::finished : Attempt::waits;
    }
  }
  std::byte* slot = transport_->reserve(bound.peers, slice.lane, bytes, credit);
  if (slot == nullptr) return Attempt::waits;
  for (const Piece& piece : bound.src) {
    const uint64_t count = elements_in(slice, piece);
    if (count == 0) continue;
    compute(slice, bound, {slot, bound.widened, operand(slice, piece), {}, count});
    slot += count * width(bound.widened);
  }
  transport_->commit(header);
  return Attempt::finished;
}

bool Execution::run_recv(const Slice& slice, const BoundStep& bound) {
  const uint64_t elements = message_elements(slice, bound, bound.dst);
  if (is_silent(elements, bound.dst, slice)) return true;
  const MessageHeader* header = transport_->front(bound.peer, slice.lane);
  if (header == nullptr) return false;
  const uint64_t bytes = elements * width(bound.widened);
  if (header->call != operation_->number || !same(header->signature, bound.signature) ||
      header->slice != slice.number || header->bytes != bytes) {
    if (unexpected_) return false;  // only the first one is reported
    unexpected_ = Unexpected{bound.peer, *header, decode(bound.signature), slice.number,
                             static_cast<uint32_t>(bytes)};
    return false;
  }
  if (bound.one_piece) {
    const Store store = compiled_->streams && bound.is_result ? Store::streamed : Store::cached;
    if (!transport_->read(bound.peer, slice.lane, {address(slice, bound.dst[0]), bytes}, store)) {
      return false;
    }
  } else if (bytes > 0) {
    const std::byte* received = transport_->payload(bound.peer, slice.lane);
    if (received == nullptr) return false;
    take(slice, bound, received);
  }
  if (!transport_->release(bound.peer, slice.lane)) return false;
  std::atomic<uint64_t>& received = received_[bound.peer];
  received.store(received.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  return true;
}

std::vector<AwaitedPeer> Execution::awaited_peers() const {
  std::vector<AwaitedPeer> awaited_peers;
  const auto add = [&](int lane, int32_t step) {
    const BoundStep& bound = compiled_->bound_steps[static_cast<size_t>(step)];
    for (const int peer : bound.peers) {
      awaited_peers.push_back({peer, transport_lane(lane), bound.kind == StepKind::send});
    }
  };
  for (const Loan& loan : loans_) add(loan.lane, loan.step);
  for (size_t lane = 0; lane < lanes_.size(); ++lane) {
    lanes_[lane].for_each_ready([&](uint32_t, int32_t step) { add(static_cast<int>(lane), step); });
  }
  return awaited_peers;
}

std::vector<Exchange> Execution::exchanges() const {
  std::map<std::pair<int, int>, Exchange> found;  // by peer and lane
  for (size_t lane = 0; lane < lanes_.size(); ++lane) {
    const int number = transport_lane(static_cast<int>(lane));
    for (size_t i = 0; i < plan_->queues.size(); ++i) {
      const Plan::Queue& queue = plan_->queues[i];
      if (queue.kind == Plan::QueueKind::local) continue;
      Exchange& its = found[{queue.peer, number}];
      (queue.kind == Plan::QueueKind::send ? its.sent : its.received) += lanes_[lane].begun(i);
    }
  }
  for (const AwaitedPeer& want : awaited_peers()) {
    Exchange& its = found[{want.peer, want.lane}];
    (want.sends ? its.to_send : its.to_receive) = true;
  }
  const std::vector<int> unsent = transport_->unsent();
  std::vector<Exchange> all;
  for (auto& [at, its] : found) {
    its.peer = at.first;
    its.lane = at.second;
    its.has_unsent = std::ranges::find(unsent, its.peer) != unsent.end();
    all.push_back(its);
  }
  return all;
}

}  // namespace tutti
