#include "collectives/runtime/calls/execution.h"

#include <algorithm>
#include <bit>

#include "collectives/runtime/calls/operation.h"

namespace tutti {

namespace {

// Less is copied sooner than it comes back.
constexpr uint64_t kLeastLent = 4 << 10;

// Where memcmp would be called for two words.
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
  const size_t steps = compiled_->moves.size();
  short_ = compiled_->slicing.slices <= 1 && compiled_->moves.few();
  uint64_t sets = 1;
  if (short_) {
    left_ = compiled_->slicing.slices == 0 || steps == 0 ? 0 : ~uint64_t{0} >> (64 - steps);
    ahead_ = left_;
  } else {
    reset_lanes();
    sets = QueueWalk::kWindow * lanes_.size();
    form_unknown_ = compiled_->point_to_point() && !compiled_->sends;
    if (compiled_->point_to_point() && compiled_->sends && can_send_whole()) go_whole();
  }
  if (scratch_bytes_ < compiled_->scratch_bytes * sets) {
    scratch_.reset();
    scratch_bytes_ = compiled_->scratch_bytes * sets;
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(scratch_bytes_);
  }
  base_[static_cast<size_t>(Space::scratch)] = scratch_.get();
}

// ---- a point-to-point message as a whole

bool Execution::can_send_whole() const {
  const Move& move = compiled_->moves[0];
  const uint64_t bytes = move.elements * compiled_->element_bytes;
  return compiled_->lends && bytes <= UINT32_MAX &&
         transport_->can_lend(move.peers, {address(Slice{}, move.src[0]), bytes});
}

void Execution::go_whole() {
  short_ = true;
  left_ = 1;
  ahead_ = 1;
}

// False while the sender has not said it.
bool Execution::learn_form() {
  const Move& move = compiled_->moves[0];
  const MessageHeader* const first = transport_->front(move.peer, transport_->lanes());
  if (first == nullptr) return false;
  form_unknown_ = false;
  if (first->bytes == move.elements * compiled_->element_bytes) go_whole();
  return true;
}

// ---- one slice, few steps

bool Execution::progress_short() {
  const Slice slice{.lane = compiled_->point_to_point() ? transport_->lanes() : 0};
  const uint64_t before = ahead_;
  for (uint64_t rest = ahead_; rest != 0; rest &= rest - 1) {
    const int step = std::countr_zero(rest);
    const Move& move = compiled_->moves[static_cast<size_t>(step)];
    if ((move.needs & left_) != 0 || (move.after & ahead_) != 0) continue;
    const Outcome outcome = run(slice, static_cast<size_t>(step));
    const uint64_t bit = uint64_t{1} << step;
    if (outcome != Outcome::waits) ahead_ &= ~bit;
    if (outcome == Outcome::done) left_ &= ~bit;
    if (outcome == Outcome::lent) loans_.back().step = step;
    if (unexpected_) break;
  }
  return ahead_ != before;
}

bool Execution::take_back() {
  const auto is_back = [&](const Loan& loan) {
    if (!transport_->take_back(loan.number)) return false;
    if (short_) {
      left_ &= ~(uint64_t{1} << loan.step);
    } else {
      finish_step(loan.lane, loan.turn, loan.step);
    }
    return true;
  };
  return std::erase_if(loans_, is_back) > 0;
}

// ---- lanes of slices

void Execution::reset_lanes() {
  const uint32_t slices = compiled_->slicing.slices;
  const auto count = static_cast<uint32_t>(compiled_->slicing.lanes);
  lanes_.resize(count);
  lanes_done_ = 0;
  for (uint32_t i = 0; i < count; ++i) {
    lanes_[i].reset(*plan_, slices / count + (i < slices % count ? 1 : 0));
    if (lanes_[i].ended()) ++lanes_done_;
  }
}

bool Execution::progress_lanes() {
  if (form_unknown_) {
    if (!learn_form()) return false;
    if (short_) return progress_short();
  }
  bool moved = false;
  for (size_t lane = 0; lane < lanes_.size(); ++lane) {
    if (lanes_[lane].ended()) continue;
    for (size_t queue = 0; queue < lanes_[lane].queues(); ++queue) {
      moved |= progress_queue(static_cast<int>(lane), queue);
      if (unexpected_) return moved;
    }
  }
  return moved;
}

bool Execution::progress_queue(int lane, size_t queue) {
  QueueWalk& walk = lanes_[static_cast<size_t>(lane)];
  bool moved = false;
  while (const std::optional<QueueWalk::Next> next = walk.next(queue)) {
    const Outcome outcome = run(slice_at(lane, next->turn), static_cast<size_t>(next->step));
    if (outcome == Outcome::waits) break;
    walk.begin(*next);
    if (outcome == Outcome::done) finish_step(lane, next->turn, next->step);
    if (outcome == Outcome::lent) {
      loans_.back() = {loans_.back().number, lane, next->turn, next->step};
    }
    moved = true;
  }
  return moved;
}

void Execution::finish_step(int lane, uint32_t turn, int32_t step) {
  QueueWalk& walk = lanes_[static_cast<size_t>(lane)];
  walk.finish(turn, step);
  if (walk.ended()) ++lanes_done_;
}

Execution::Slice Execution::slice_at(int lane, uint32_t turn) const {
  const uint32_t number = turn * static_cast<uint32_t>(lanes_.size()) + static_cast<uint32_t>(lane);
  const uint64_t first = number * compiled_->slicing.elements;
  const uint64_t shift = first * compiled_->element_bytes;
  const uint64_t set = static_cast<uint64_t>(lane) * QueueWalk::kWindow + turn % QueueWalk::kWindow;
  return {.number = number,
          .lane = compiled_->point_to_point() ? transport_->lanes() : lane,
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

// Messages without data are not sent; but tokens are, and where only the two ranks know how long a
// block is, they tell each other in slice 0, as point-to-point calls do.
bool Execution::is_silent(uint64_t elements, std::span<const Piece> message,
                          const Slice& slice) const {
  if (elements > 0 || message.empty()) return false;
  return !compiled_->point_to_point() && (!compiled_->private_blocks || slice.number > 0);
}

Execution::Outcome Execution::run(const Slice& slice, size_t step) {
  const Move& move = compiled_->moves[step];
  switch (move.kind) {
    case StepKind::send:
      return run_send(slice, step);
    case StepKind::recv:
    case StepKind::recv_reduce:
      return run_recv(slice, move) ? Outcome::done : Outcome::waits;
    case StepKind::reduce:
      run_reduce(slice, move);
      break;
    case StepKind::copy:
      run_copy(slice, move);
      break;
  }
  return Outcome::done;
}

Execution::Outcome Execution::run_send(const Slice& slice, size_t step) {
  const Move& move = compiled_->moves[step];
  const uint64_t elements = message_elements(slice, move, move.src);
  if (is_silent(elements, move.src, slice)) return Outcome::done;
  const uint64_t bytes = elements * width(move.widened);
  const MessageHeader header{.call = operation_->number,
                             .slice = slice.number,
                             .step = static_cast<uint32_t>(step),
                             .bytes = static_cast<uint32_t>(bytes),
                             .signature = move.signature};
  const int credit = compiled_->slicing.credit;
  if (move.one_piece) {
    const std::span<const std::byte> payload(address(slice, move.src[0]), bytes);
    if (move.lendable && compiled_->lends && bytes >= kLeastLent) {
      if (transport_->can_lend(move.peers, payload)) {
        const int loan = transport_->lend(move.peers, slice.lane, header, payload);
        if (loan < 0) return Outcome::waits;
        loans_.push_back({.number = loan});
        return Outcome::lent;
      }
      if (is_whole()) {  // its registration has ended since
        short_ = false;
        return Outcome::waits;
      }
    }
    if (move.peers.size() == 1) {
      const bool sent = transport_->write(move.peer, slice.lane, header, payload, credit);
      return sent ? Outcome::done : Outcome::waits;
    }
  }
  std::byte* slot = transport_->reserve(move.peers, slice.lane, bytes, credit);
  if (slot == nullptr) return Outcome::waits;
  for (const Piece& piece : move.src) {
    const uint64_t count = elements_in(slice, piece);
    if (count == 0) continue;
    compute(slice, move, {slot, move.widened, operand(slice, piece), {}, count});
    slot += count * width(move.widened);
  }
  transport_->commit(header);
  return Outcome::done;
}

bool Execution::run_recv(const Slice& slice, const Move& move) {
  const uint64_t elements = message_elements(slice, move, move.dst);
  if (is_silent(elements, move.dst, slice)) return true;
  const MessageHeader* header = transport_->front(move.peer, slice.lane);
  if (header == nullptr) return false;
  const uint64_t bytes = elements * width(move.widened);
  if (header->call != operation_->number || !same(header->signature, move.signature) ||
      header->slice != slice.number || header->bytes != bytes) {
    unexpected_ = Unexpected{move.peer, *header, decode(move.signature), slice.number,
                             static_cast<uint32_t>(bytes)};
    return false;
  }
  if (move.one_piece) {
    const Store store = compiled_->streams && move.is_result ? Store::streamed : Store::cached;
    if (!transport_->read(move.peer, slice.lane, {address(slice, move.dst[0]), bytes}, store)) {
      return false;
    }
  } else if (bytes > 0) {
    const std::byte* received = transport_->payload(move.peer, slice.lane);
    if (received == nullptr) return false;
    take(slice, move, received);
  }
  if (!transport_->release(move.peer, slice.lane)) return false;
  std::atomic<uint64_t>& received = received_[move.peer];
  received.store(received.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  return true;
}

std::vector<Want> Execution::wants() const {
  std::vector<Want> wants;
  const auto add = [&](int peer, int lane, const Move& move) {
    if (peer >= 0) wants.push_back({peer, lane, move.kind == StepKind::send});
  };
  const int p2p = compiled_->point_to_point() ? transport_->lanes() : -1;
  if (short_) {
    for (uint64_t rest = left_; rest != 0; rest &= rest - 1) {
      const Move& move = compiled_->moves[static_cast<size_t>(std::countr_zero(rest))];
      if ((move.needs & left_) != 0 || (move.after & ahead_) != 0) continue;
      for (const int peer : move.peers) add(peer, std::max(p2p, 0), move);
    }
    return wants;
  }
  for (const Loan& loan : loans_) {
    const Move& move = compiled_->moves[static_cast<size_t>(loan.step)];
    for (const int peer : move.peers) add(peer, loan.lane, move);
  }
  for (size_t i = 0; i < lanes_.size(); ++i) {
    for (size_t queue = 0; queue < lanes_[i].queues(); ++queue) {
      const std::optional<QueueWalk::Next> next = lanes_[i].next(queue);
      if (!next) continue;
      const Move& move = compiled_->moves[static_cast<size_t>(next->step)];
      for (const int peer : move.peers) add(peer, p2p >= 0 ? p2p : static_cast<int>(i), move);
    }
  }
  return wants;
}

}  // namespace tutti
