#include "collectives/runtime/calls/point_to_point.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "base/copy_bytes.h"
#include "base/text.h"

namespace tutti::internal {

namespace {

uint64_t bytes_of(const Signature& message) { return message.count * size_of(message.dtype); }

bool is_message(const std::array<uint64_t, 2>& words) {
  const Signature signature = decode(words);
  return signature.collective == Collective::send_recv &&
         static_cast<size_t>(signature.dtype) < kEveryDType;
}

bool accepts(const Operation& receive, const Signature& message) {
  const CompiledCall& wanted = *receive.compiled;
  return (wanted.tag == kAnyTag || wanted.tag == message.root) &&
         wanted.signature.own == message.own;
}

bool accepts(const Operation& receive, int source, const Signature& message) {
  return (receive.peer() == kAnySource || receive.peer() == source) && accepts(receive, message);
}

Operation* first_accepting(const OperationQueue& receives, const Signature& message) {
  for (Operation* const receive : receives) {
    if (accepts(*receive, message)) return receive;
  }
  return nullptr;
}

// Returns the envelope of a message. For a message in another wire format, it has the type and the
// count of the decoded values.
MessageInfo describe(int source, const Signature& message) {
  MessageInfo info{
      .source = source, .tag = message.root, .dtype = message.dtype, .count = message.count};
  if (!is_block(message.dtype)) return info;
  const uint64_t values = values_of(message.dtype);
  info.dtype = DType::f32;
  info.count = message.count * values - (message.algorithm > 0 ? values - message.algorithm : 0);
  return info;
}

}  // namespace

PointToPoint::PointToPoint(int rank, int size, uint64_t most_kept, Owner owner)
    : rank_(rank),
      owner_(std::move(owner)),
      peers_(static_cast<size_t>(size)),
      most_kept_(most_kept) {}

PointToPoint::Peer& PointToPoint::peer(int rank) {
  std::unique_ptr<Peer>& found = peers_[static_cast<size_t>(rank)];
  if (!found) {
    found = std::make_unique<Peer>(rank);
    used_.push_back(found.get());
  }
  return *found;
}

const Plan* PointToPoint::plan(int peer, bool sends) {
  if (peer == rank_ || peer == kAnySource) return nullptr;
  Peer& other = this->peer(peer);
  std::unique_ptr<Plan>& plan = sends ? other.out.plan : other.in.plan;
  if (!plan) {
    Program program;
    program.steps = {sends ? tutti::send({peer}, {tutti::input(0)})
                           : tutti::recv(peer, {tutti::output(0)})};
    const Shape shape{.ranks = static_cast<int>(peers_.size()), .rank = rank_};
    plan = std::make_unique<Plan>(make_plan(Collective::send_recv, shape, std::move(program)));
  }
  return plan.get();
}

// ---- calls with predecessors

bool PointToPoint::is_early(Operation& operation) {
  if (operation.after == nullptr || owner_.may_start(operation)) return false;
  early_.push_back(operation);
  return true;
}

bool PointToPoint::progress_early() {
  bool moved = false;
  OperationQueue waiting(std::move(early_));
  while (Operation* const operation = waiting.pop_front()) {
    --in_flight_;  // incremented again below
    const size_t before = early_.size();
    if (operation->compiled->sends) {
      send(*operation);
    } else {
      receive(*operation);
    }
    moved |= early_.size() == before;
  }
  return moved;
}

// ---- sends

void PointToPoint::send(Operation& operation) {
  ++in_flight_;
  if (is_early(operation)) return;
  operation.encode();
  Outgoing& out = peer(operation.peer()).out;
  operation.number = ++out.made;
  if (operation.peer() != rank_) {
    out.calls.push_back(operation);
    return;
  }
  const Message message{rank_, operation.number, operation.compiled->signature_words};
  Operation* const receive = taker_of(message);
  const std::span payload(operation.input, bytes_of(operation.compiled->signature));
  if (receive == nullptr) {
    // The message is copied unless a receive already waits for it: a rank that blocked here could
    // never receive its own message.
    std::unique_ptr<std::byte[]> copy = room_for(message);
    if (copy == nullptr) return owner_.abandoned(operation);
    std::ranges::copy(payload, copy.get());
    kept_.push_back({.message = message, .payload = std::move(copy)});
  } else {
    if (!fits(*receive, message)) return owner_.abandoned(operation);
    if (!payload.empty()) std::memmove(receive->output, payload.data(), payload.size());
    complete(*receive);
  }
  complete(operation);
}

bool PointToPoint::progress_sends(Peer& to) {
  Outgoing& out = to.out;
  bool moved = false;
  while (!out.calls.empty() && !owner_.abort.raised()) {
    Operation& operation = *out.calls.front();
    moved |= advance(operation, out.execution);
    if (!out.execution.done() || !transport_->p2p_sent(to.rank)) break;
    out.calls.pop_front();
    complete(operation);
    moved = true;
  }
  return moved;
}

// ---- receives

OperationQueue& PointToPoint::list_of(const Operation& receive) {
  if (receive.peer() == kAnySource) return from_any_;
  return peer(receive.peer()).in.receives;
}

void PointToPoint::receive(Operation& operation) {
  ++in_flight_;
  if (is_early(operation)) return;
  operation.order = ++receives_;
  if (!kept_.empty() && found_kept(operation)) return;
  list_of(operation).push_back(operation);
}

void PointToPoint::withdraw(Operation& operation) {
  list_of(operation).erase(operation);
  complete(operation);
}

// Completes the matching probes, which do not consume the message, and returns the oldest receive
// that accepts it.
Operation* PointToPoint::taker_of(const Message& message) {
  const Signature signature = decode(message.signature);
  while (true) {
    Operation* named = first_accepting(peer(message.source).in.receives, signature);
    Operation* any = first_accepting(from_any_, signature);
    Operation* taker = named;
    if (named == nullptr || (any != nullptr && any->order < named->order)) taker = any;
    if (taker == nullptr) return nullptr;
    list_of(*taker).erase(*taker);
    if (!taker->probes) return taker;
    taker->received = describe(message.source, signature);
    complete(*taker);
  }
}

bool PointToPoint::fits(Operation& receive, const Message& message) {
  const CompiledCall& wanted = *receive.compiled;
  const Signature signature = decode(message.signature);
  receive.received = describe(message.source, signature);
  receive.number = message.call;
  const uint64_t room = wanted.signature.count;
  const bool right_length =
      wanted.may_be_shorter
          ? signature.count <= room
          : signature.count == room && signature.algorithm == wanted.signature.algorithm;
  if (signature.dtype != wanted.dtype || !right_length) {
    owner_.on_mismatch(receive, message.source, message.call, signature);
    owner_.abandoned(receive);
    return false;
  }
  if (message.signature != wanted.signature_words || message.source != wanted.peer) {
    receive.matched = owner_.compiled({receive.output, signature.count, signature.dtype},
                                      message.source, signature);
  }
  return true;
}

// Prepares the receive of the most likely next message before it arrives.
void PointToPoint::get_ready(Incoming& in) {
  if (in.receives.empty() || in.ready == in.receives.front() || in.receives.front()->probes) return;
  in.ready = in.receives.front();
  in.execution.start(*in.ready, transport_, owner_.received);
}

// Takes the next message in the common case: it is exactly what the oldest receive expects.
bool PointToPoint::take_expected(Incoming& in, const MessageHeader& header) {
  if (in.receives.empty() || !from_any_.empty()) return false;
  Operation& receive = *in.receives.front();
  const CompiledCall& wanted = *receive.compiled;
  const std::array<uint64_t, 2>& words = wanted.signature_words;
  if (header.signature[0] != words[0] || header.signature[1] != words[1] ||
      header.call != in.taken + 1 || header.slice != 0 || receive.probes) {
    return false;
  }
  receive.received = describe(wanted.peer, wanted.signature);
  receive.number = header.call;
  in.receives.pop_front();
  in.taker = &receive;
  ++in.taken;
  return true;
}

// Examines the next message of this source. Returns true if a receive takes it, or if it is to be
// buffered: `taker` is then the operation that receives it.
bool PointToPoint::match(Peer& from) {
  const int source = from.rank;
  Incoming& in = from.in;
  if (!is_wanted(in)) return false;
  const MessageHeader* const header = transport_->front(source, transport_->lanes());
  if (header == nullptr) {
    get_ready(in);
    return false;
  }
  if (take_expected(in, *header)) return true;
  const Message message{source, header->call, header->signature};
  if (header->call != in.taken + 1 || header->slice != 0 || !is_message(header->signature)) {
    Operation& waiting = in.receives.empty() ? *from_any_.front() : *in.receives.front();
    waiting.number = in.taken + 1;
    owner_.unexpected(waiting, {source, *header, waiting.compiled->signature, 0, header->bytes});
    return false;
  }
  if (Operation* const taker = taker_of(message)) {
    if (!fits(*taker, message)) return false;
    in.taker = taker;
  } else {
    const bool only_probes_waited = in.receives.empty() && from_any_.empty();
    if (only_probes_waited || !may_keep(in, message) || !keep(message)) return false;
  }
  ++in.taken;
  return true;
}

bool PointToPoint::progress_from(Peer& from) {
  Incoming& in = from.in;
  bool moved = false;
  while (!owner_.abort.raised() && (in.taker != nullptr || match(from))) {
    Operation& operation = *in.taker;
    if (in.ready == &operation && operation.matched == nullptr) operation.started = true;
    in.ready = nullptr;
    moved |= advance(operation, in.execution);
    if (!in.execution.done()) break;
    in.taker = nullptr;
    arrived(operation);
    moved = true;
  }
  return moved;
}

bool PointToPoint::advance(Operation& operation, Execution& execution) {
  if (!operation.started) {
    execution.start(operation, transport_, owner_.received);
    operation.started = true;
  }
  const bool moved = execution.progress();
  if (execution.unexpected()) owner_.unexpected(operation, *execution.unexpected());
  return moved;
}

// Makes progress on receives from any source: looks for messages of ranks that do not have a Peer
// yet.
bool PointToPoint::progress_from_any() {
  bool moved = false;
  for (int source = 0; source < static_cast<int>(peers_.size()) && !from_any_.empty(); ++source) {
    if (source == rank_ || peers_[static_cast<size_t>(source)]) continue;
    if (transport_->front(source, transport_->lanes()) != nullptr) {
      moved |= progress_from(peer(source));
    }
  }
  return moved;
}

bool PointToPoint::progress() {
  bool moved = !early_.empty() && progress_early();
  for (size_t i = 0; i < used_.size(); ++i) {  // by index, because callbacks may add elements
    Peer& other = *used_[i];
    if (other.rank == rank_) continue;
    if (!other.out.calls.empty()) moved |= progress_sends(other);
    if (is_wanted(other.in)) moved |= progress_from(other);
  }
  if (!from_any_.empty() && transport_ != nullptr) moved |= progress_from_any();
  return moved;
}

// ---- messages that arrived before their receives

// Returns memory for the message. If memory runs out, aborts the communicator and returns null.
std::unique_ptr<std::byte[]> PointToPoint::room_for(const Message& message) {
  const Signature signature = decode(message.signature);
  try {
    return std::make_unique_for_overwrite<std::byte[]>(bytes_of(signature));
  } catch (const std::bad_alloc&) {
    owner_.failed(Error(ErrorCode::system,
                        cat("no memory is left to buffer a message from rank ", message.source,
                            " that arrived before its receive: ", to_string(signature)),
                        {.remedy = "receive messages in the order in which they are sent"}));
    return nullptr;
  }
}

bool PointToPoint::is_awaited(const OperationQueue& receives) {
  for (const Operation* const receive : receives) {
    if (receive->awaited.load(std::memory_order_relaxed)) return true;
  }
  return false;
}

// Returns true if an unexpected message may be buffered. The limit `most_kept_` does not apply to
// internal messages, which are short, nor while no bytes are buffered, nor while a thread waits for
// a receive from this source or from any source.
bool PointToPoint::may_keep(const Incoming& in, const Message& message) const {
  const Signature signature = decode(message.signature);
  return signature.own || kept_bytes_ == 0 || kept_bytes_ + bytes_of(signature) <= most_kept_ ||
         is_awaited(in.receives) || is_awaited(from_any_);
}

// Starts to buffer a message: an internal operation receives it into allocated memory. Returns
// false if memory runs out.
bool PointToPoint::keep(const Message& message) {
  const Signature signature = decode(message.signature);
  std::unique_ptr<std::byte[]> payload = room_for(message);
  if (payload == nullptr) return false;
  Kept& kept = kept_.emplace_back(Kept{.message = message, .payload = std::move(payload)});
  kept_bytes_ += bytes_of(signature);
  kept.arriving = std::make_unique<Operation>();
  Operation& operation = *kept.arriving;
  operation.compiled = owner_.compiled({kept.payload.get(), signature.count, signature.dtype},
                                       message.source, signature);
  operation.begin();
  operation.output = kept.payload.get();
  operation.number = message.call;
  peer(message.source).in.taker = &operation;
  return true;
}

// Searches the buffered messages in their order of arrival. Returns true if one matches the
// receive.
bool PointToPoint::found_kept(Operation& receive) {
  for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
    const Signature signature = decode(kept->message.signature);
    if (kept->taker != nullptr || !accepts(receive, kept->message.source, signature)) continue;
    if (receive.probes) {
      receive.received = describe(kept->message.source, signature);
      complete(receive);
    } else if (fits(receive, kept->message)) {
      kept->taker = &receive;
      if (kept->arriving == nullptr) deliver(kept);
    }
    return true;
  }
  return false;
}

void PointToPoint::arrived(Operation& operation) {
  if (kept_.empty()) return complete(operation);
  const auto kept = std::ranges::find_if(
      kept_, [&](const Kept& kept) { return kept.arriving.get() == &operation; });
  if (kept == kept_.end()) {
    complete(operation);
    return;
  }
  kept->arriving = nullptr;
  if (kept->taker != nullptr) deliver(kept);
}

void PointToPoint::deliver(std::list<Kept>::iterator kept) {
  const uint64_t bytes = bytes_of(decode(kept->message.signature));
  Operation& receive = *kept->taker;
  copy_bytes(receive.output, kept->payload.get(), bytes);
  if (kept->message.source != rank_) kept_bytes_ -= bytes;
  kept_.erase(kept);
  complete(receive);
}

// ---- completion

void PointToPoint::complete(Operation& operation) {
  --in_flight_;
  owner_.completed(operation);
}

void PointToPoint::abandon() {
  const auto end = [&](OperationQueue& calls) {
    while (Operation* const operation = calls.pop_front()) owner_.abandoned(*operation);
  };
  for (Peer* const other : used_) {
    end(other->out.calls);
    end(other->in.receives);
    other->in.ready = nullptr;
    if (other->in.taker != nullptr) owner_.abandoned(*std::exchange(other->in.taker, nullptr));
  }
  end(from_any_);
  end(early_);
  for (Kept& kept : kept_) {
    if (kept.taker != nullptr) owner_.abandoned(*kept.taker);
  }
  kept_.clear();
  kept_bytes_ = 0;
  in_flight_ = 0;
}

std::vector<AwaitedPeer> PointToPoint::awaited_peers(const Operation& operation) const {
  const int lane = transport_ != nullptr ? transport_->lanes() : 0;
  const bool sends = operation.compiled->sends;
  if (operation.peer() != kAnySource) return {{operation.peer(), lane, sends}};
  if (operation.matched) return {{operation.received.source, lane, false}};
  std::vector<AwaitedPeer> awaited_peers;
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    if (peer != rank_) awaited_peers.push_back({peer, lane, false});
  }
  return awaited_peers;
}

std::vector<PointToPoint::Unclaimed> PointToPoint::unclaimed() const {
  constexpr size_t kMost = 4;
  std::vector<Unclaimed> found;
  for (const Kept& kept : kept_) {
    if (kept.taker != nullptr || found.size() == kMost) continue;
    const Signature signature = decode(kept.message.signature);
    found.push_back({describe(kept.message.source, signature), signature.own});
  }
  return found;
}

}  // namespace tutti::internal
