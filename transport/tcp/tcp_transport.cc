#include "transport/tcp/tcp_transport.h"

#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/copy_bytes.h"
#include "base/deadline.h"
#include "base/network_timeout.h"
#include "base/text.h"
#include "transport/integrity/hash.h"
#include "transport/tcp/congestion.h"

namespace tutti {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

namespace {

constexpr size_t kMessageBytes = Slots::kBytes;
constexpr int kSlots = 16;
// Bytes requested beyond the frame that is needed, so that a small message takes one system call.
constexpr size_t kReadAhead = 4 << 10;

}  // namespace

const size_t TcpTransport::kStagingBytes = sizeof(Frame) + kMessageBytes + kReadAhead;

TcpTransport::TcpTransport(int ranks, int lanes, Hooks hooks, const Peers& peers)
    : Transport({.limits = limits(ranks, lanes), .needs_descriptors = true}),
      lanes_(lanes),
      hooks_(std::move(hooks)),
      resumed_(static_cast<size_t>(ranks)),
      checked_(resumed_.size()),
      out_(resumed_.size() * static_cast<size_t>(lanes + 1)),
      in_(out_.size()) {
  for (const int peer : peers.resumed) resumed_[static_cast<size_t>(peer)] = true;
  for (const int peer : peers.checked) checked_[static_cast<size_t>(peer)] = true;
}

Limits TcpTransport::limits(int ranks, int lanes) {
  return Limits::of_one_path(lanes, std::max(kSlots, ranks - 1), {kMessageBytes, kMessageBytes});
}

void TcpTransport::accept(int peer, int lane, int number, ByteStream socket) {
  if (lane >= 0 && lane <= lanes_) hand_over(false, index(peer, lane), number, std::move(socket));
}

void TcpTransport::opened(int peer, int lane, ByteStream socket) {
  if (lane >= 0 && lane <= lanes_) hand_over(true, index(peer, lane), 0, std::move(socket));
}

void TcpTransport::hand_over(bool outgoing, size_t connection, int number, ByteStream socket) {
  std::lock_guard lock(handed_over_mutex_);
  handed_over_.push_back({outgoing, connection, number, std::move(socket)});
  has_handed_over_.store(true, std::memory_order_release);
}

void TcpTransport::take_handed_over() {
  if (!has_handed_over_.load(std::memory_order_acquire)) return;
  std::lock_guard lock(handed_over_mutex_);
  for (auto& [outgoing, connection, number, socket] : handed_over_) {
    socket.use_large_records();
    bool& checked = outgoing ? out(connection).checked : in(connection).checked;
    checked = checked && !socket.encrypted();  // TLS authenticates every record
    if (outgoing) {
      avoid_pacing(socket.get());
      out(connection).socket = std::move(socket);
    } else if (resumed(peer_of(connection)) && (number > 0 || in(connection).socket)) {
      take_next(connection, number, std::move(socket));
    } else if (!in(connection).socket) {
      in(connection).socket = std::move(socket);
      in(connection).staging = std::make_unique_for_overwrite<std::byte[]>(kStagingBytes);
      watch_ready_set(connection);
    }
  }
  handed_over_.clear();
  has_handed_over_.store(false, std::memory_order_relaxed);
  bytes_moved_ = true;
}

// Watches a connection. As long as there are few, none is watched, because trying each is cheaper.
void TcpTransport::watch_ready_set(size_t connection) {
  if (++incoming_ <= kFewConnections) return;
  if (incoming_ > kFewConnections + 1) {
    return ready_set_.watch(in(connection).socket.get(), in(connection).ready);
  }
  for (const size_t i : in_.used()) {
    if (in(i).socket) ready_set_.watch(in(i).socket.get(), in(i).ready);
  }
}

// ---- outbox

// Requests the connection if necessary. Returns true once it is open.
bool TcpTransport::open(int peer, int lane) {
  Out& connection = out(peer, lane);
  if (!connection.socket && !connection.asked_for) {
    connection.asked_for = true;
    hooks_.open(peer, lane, {});
  }
  if (!connection.socket) take_handed_over();
  return static_cast<bool>(connection.socket);
}

std::byte* TcpTransport::reserve(std::span<const int> peers, int lane, size_t bytes, int credit) {
  if (slot_ != nullptr) slots_.drop(std::exchange(slot_, nullptr));
  for (const int peer : peers) {
    Out& connection = out(peer, lane);
    if (connection.broken || !open(peer, lane)) return nullptr;
    if (static_cast<int>(connection.queue.size()) >= credit) flush(index(peer, lane));
    if (static_cast<int>(connection.queue.size()) >= credit) return nullptr;
  }
  peers_ = peers;
  lane_ = lane;
  slot_ = slots_.take();
  return slot_->memory.get();
}

void TcpTransport::commit(const MessageHeader& header) {
  Slot* const slot = std::exchange(slot_, nullptr);
  slot->users = static_cast<int>(peers_.size());
  const std::span payload(slot->memory.get(), header.bytes);
  const uint64_t hash = hash_for_peers(payload);
  if (hooks_.damage) hooks_.damage(payload);
  for (const int peer : peers_) {
    const size_t to = index(peer, lane_);
    enqueue(to, {make_frame(out(to), header, hash), slot, 0});
    if (out(to).queue.size() == 1) flush(to);
  }
}

bool TcpTransport::push(size_t index, Frame& frame, std::span<const std::byte> payload, Slot* slot,
                        size_t& sent) {
  Out& connection = out(index);
  const size_t total = sizeof(Frame) + payload.size();
  while (sent < total) {
    const size_t of_frame = std::min(sent, sizeof(Frame));
    const size_t of_payload = sent - of_frame;
    const ssize_t written = connection.socket.send(
        std::as_bytes(std::span(&frame, 1)).subspan(of_frame), payload.subspan(of_payload));
    if (written < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) {
        broke(index, cat("sending failed: ", std::strerror(errno)), is_silence(errno));
      }
      return false;
    }
    if (connection.unconfirmed) {
      keep(connection, std::as_bytes(std::span(&frame, 1)), payload, slot, sent,
           static_cast<size_t>(written));
    }
    sent += static_cast<size_t>(written);
    bytes_moved_ = true;
  }
  return true;
}

// Writes as much of the committed messages as the socket accepts.
void TcpTransport::flush(size_t index) {
  Out& connection = out(index);
  if (connection.resumes && !resume(index) && !connection.broken) return;
  while (!connection.queue.empty() && !connection.broken) {
    Outgoing& message = connection.queue.front();
    const std::span<const std::byte> payload(message.slot->memory.get(),
                                             message.frame.header.bytes);
    if (!push(index, message.frame, payload, message.slot, message.sent)) break;
    dequeue(index);
  }
  // No peer will read the rest of a broken connection; the owner of the transport has been
  // notified.
  while (connection.broken && !connection.queue.empty()) dequeue(index);
  if (ends_sending_ && connection.queue.empty() && connection.socket && !connection.resumes) {
    ::shutdown(connection.socket.get(), SHUT_WR);
  }
}

void TcpTransport::end_sending() {
  ends_sending_ = true;
  for (const size_t i : out_.used()) flush(i);
}

std::vector<Fd> TcpTransport::release_outgoing() {
  std::vector<Fd> sockets;
  for (const size_t i : out_.used()) {
    Out& connection = out(i);
    if (connection.socket && !connection.broken) sockets.push_back(connection.socket.release());
    connection.broken = true;
  }
  return sockets;
}

void TcpTransport::dequeue(size_t index) {
  std::deque<Outgoing>& queue = out(index).queue;
  slots_.drop(queue.front().slot);
  queue.pop_front();
  count_queued(index, -1);
}

// Sends a message directly from the caller's memory as far as the socket accepts it, and queues a
// copy of the rest.
bool TcpTransport::write(int peer, int lane, const MessageHeader& header,
                         std::span<const std::byte> payload, int credit) {
  if (hooks_.damage) return write_by_copy(peer, lane, header, payload, credit);
  const size_t to = index(peer, lane);
  Out& connection = out(to);
  if (connection.broken || !open(peer, lane)) return false;
  if (!connection.queue.empty()) flush(to);
  if (static_cast<int>(connection.queue.size()) >= credit) return false;
  const uint64_t hash = connection.checked ? integrity_hash(payload) : 0;
  Outgoing message{make_frame(connection, header, hash), nullptr, 0};
  if (connection.queue.empty() && !connection.resumes &&
      push(to, message.frame, payload, nullptr, message.sent)) {
    return true;
  }
  if (connection.broken) return false;
  const size_t of_payload = message.sent - std::min(message.sent, sizeof(Frame));
  message.slot = slots_.take();
  copy_bytes(message.slot->memory.get() + of_payload, payload.data() + of_payload,
             payload.size() - of_payload);
  enqueue(to, message);
  return true;
}

void TcpTransport::enqueue(size_t connection, Outgoing message) {
  out(connection).queue.push_back(message);
  count_queued(connection, 1);
}

// Makes progress. Partial messages count, because they show that the peer is alive.
bool TcpTransport::progress() {
  take_handed_over();
  if (look_is_due_) look_at_links();
  if (queued_ > 0) {
    for (const size_t i : out_.used()) {
      if (!out(i).queue.empty() || out(i).resumes) flush(i);
    }
  }
  return std::exchange(bytes_moved_, false);
}

std::vector<int> TcpTransport::unsent() const {
  std::vector<int> peers;
  for (const size_t i : out_.used()) {
    const Out& connection = *out_.find(i);
    const bool waits = !is_p2p(i) && (!connection.queue.empty() || connection.resumes);
    if (waits) peers.push_back(peer_of(i));
  }
  std::ranges::sort(peers);
  const auto same = std::ranges::unique(peers);
  peers.erase(same.begin(), same.end());
  return peers;
}

// ---- inbox

size_t TcpTransport::receive(In& connection, int peer, std::byte* memory, size_t limit) {
  if (!connection.late.empty() && limit > 0) return receive_late(connection, memory, limit);
  if (!connection.socket || connection.ended || connection.broken || connection.waits ||
      limit == 0 || ready_set_.is_idle(connection.ready)) {
    connection.starved = true;
    return 0;
  }
  const ssize_t received = connection.socket.receive(memory, limit);
  connection.starved = received < static_cast<ssize_t>(limit);
  connection.ready.idle = connection.ready.watched && connection.starved;
  if (received > 0) {
    bytes_moved_ = true;
    connection.received += static_cast<size_t>(received);
    return static_cast<size_t>(received);
  }
  if (received == 0) {
    ready_set_.forget(connection.socket.get(), connection.ready);
    if (connection.has_frame || connection.begin != connection.end) {
      broke(connection, peer, "the connection ended within a message");
    } else {
      connection.ended = true;
    }
  } else if (errno == EBADMSG) {
    mark_corrupted(connection, peer, "a TLS record is damaged or forged");
  } else if (errno != EAGAIN && errno != EINTR) {
    broke(connection, peer, cat("receiving failed: ", std::strerror(errno)));
  }
  return 0;
}

// Receives once, to get `wanted` bytes from the start of the oldest message.
void TcpTransport::stage(In& connection, int peer, size_t wanted) {
  if (!connection.staging) return;
  if (connection.begin == connection.end) connection.begin = connection.end = 0;
  std::byte* const staging = connection.staging.get();
  if (connection.begin + wanted > kStagingBytes) {
    std::memmove(staging, staging + connection.begin, connection.end - connection.begin);
    connection.end -= connection.begin;
    connection.begin = 0;
  }
  const size_t limit = std::min(connection.begin + wanted + kReadAhead, kStagingBytes);
  connection.end += receive(connection, peer, staging + connection.end, limit - connection.end);
}

const MessageHeader* TcpTransport::front(int peer, int lane) {
  In& connection = in(peer, lane);
  if (connection.has_frame) return &connection.frame.header;
  if (!connection.socket || connection.waits) take_handed_over();
  if (connection.end - connection.begin < sizeof(Frame)) stage(connection, peer, sizeof(Frame));
  if (connection.end - connection.begin < sizeof(Frame)) return nullptr;
  std::memcpy(&connection.frame, connection.staging.get() + connection.begin, sizeof(Frame));
  if (!check_frame(connection, peer)) {
    connection.begin = connection.end;
    return nullptr;
  }
  connection.begin += sizeof(Frame);
  connection.has_frame = true;
  connection.verified = false;
  connection.placed = 0;
  return &connection.frame.header;
}

const std::byte* TcpTransport::payload(int peer, int lane) {
  In& connection = in(peer, lane);
  const size_t bytes = connection.frame.header.bytes;
  if (connection.end - connection.begin < bytes) stage(connection, peer, bytes);
  if (connection.end - connection.begin < bytes) return nullptr;
  const std::byte* const payload = connection.staging.get() + connection.begin;
  return check_payload(connection, peer, {payload, bytes}) ? payload : nullptr;
}

bool TcpTransport::read(int peer, int lane, std::span<std::byte> destination, Store) {
  In& connection = in(peer, lane);
  const size_t staged =
      std::min(connection.end - connection.begin, destination.size() - connection.placed);
  if (staged > 0) {
    copy_bytes(destination.data() + connection.placed, connection.staging.get() + connection.begin,
               staged);
    connection.begin += staged;
    connection.placed += staged;
  }
  if (connection.placed < destination.size()) {
    connection.placed += receive(connection, peer, destination.data() + connection.placed,
                                 destination.size() - connection.placed);
  }
  return connection.placed == destination.size() && check_payload(connection, peer, destination);
}

bool TcpTransport::release(int peer, int lane) {
  In& connection = in(peer, lane);
  connection.begin += connection.frame.header.bytes - connection.placed;
  connection.has_frame = false;
  return true;
}

// Returns true if all messages have been released. A connection that its sender opened is handed
// over before the report that the sender has left. If the connection is broken, it has not ended
// until look_at_links() finds that the sender has gone, so that it will not be resumed.
bool TcpTransport::ended(int peer, int lane) const {
  if (has_handed_over_.load(std::memory_order_acquire)) return false;
  const In* const found = in_.find(index(peer, lane));
  if (found == nullptr) return true;
  const In& connection = *found;
  if (!connection.late.empty() || connection.waits) return connection.broken;
  return !connection.socket || connection.ended || connection.broken;
}

// ---- sleeping

// Prepares a sleep. Only connections that are tried after this call, and then lack bytes, can end
// the sleep. The clock is read here, because a rank that is about to sleep has time for it.
void TcpTransport::arm(WaitSet&) {
  const int64_t until = next_look_ns_ - now_ns();
  look_is_due_ =
      until <= 0 ||
      (until <= kLookAgainNs - kLookSoonNs &&
       std::ranges::any_of(out_.used(), [this](size_t i) { return has_unconfirmed(out(i)); }));
  for (const size_t i : in_.used()) in(i).starved = false;
}

void TcpTransport::watch(WaitSet& set) {
  for (const size_t i : in_.used()) {
    const In& connection = in(i);
    if (connection.socket && connection.starved && !connection.ended && !connection.broken &&
        !connection.waits) {
      set.add(connection.socket.get(), POLLIN);
    }
  }
  for (const size_t i : out_.used()) {
    const Out& connection = out(i);
    if (!connection.socket || connection.broken) continue;
    if (awaits_position(connection)) {
      set.add(connection.socket.get(), POLLIN);
    } else if (!connection.queue.empty() || connection.resumes) {
      set.add(connection.socket.get(), POLLOUT);
    } else if (has_unconfirmed(connection)) {
      set.add(connection.socket.get(), 0);  // without events: reports only its end
    }
  }
}

}  // namespace tutti
