// Resumes broken connections (see tcp_transport.h).
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/deadline.h"
#include "base/network_timeout.h"
#include "base/text.h"
#include "transport/tcp/tcp_transport.h"

namespace tutti {

namespace {

// Number of bytes between queries of the bytes that the system has confirmed, because each query is
// a system call.
constexpr size_t kKeptBetweenLooks = 256 << 10;
constexpr size_t kDrainBytes = 64 << 10;

}  // namespace

bool TcpTransport::give_up(size_t outgoing) {
  Out& connection = out(outgoing);
  if (std::exchange(connection.broken, true)) return false;
  if (std::exchange(connection.resumes, false)) count_queued(outgoing, -1);
  return true;
}

void TcpTransport::mark_broken(size_t outgoing, const std::string& text) {
  const Out& connection = out(outgoing);
  if (!give_up(outgoing)) return;
  // Only the reader can decide that the last bytes are missing: it may have left because it did not
  // need them.
  if (ends_sending_ && connection.queue.empty() && connection.unconfirmed) return;
  hooks_.lost(peer_of(outgoing), true, text);
}

void TcpTransport::mark_broken(In& connection, int peer, const std::string& text) {
  if (std::exchange(connection.broken, true)) return;
  hooks_.lost(peer, false, text);
}

// ---- the sender's side

void TcpTransport::keep(Out& connection, std::span<const std::byte> frame,
                        std::span<const std::byte> payload, Slot* slot, size_t from, size_t bytes) {
  const size_t of_frame = std::min(bytes, frame.size() - std::min(from, frame.size()));
  const size_t begin = std::max(from, frame.size()) - frame.size();
  if (of_frame > 0) connection.unconfirmed->add(frame.subspan(from, of_frame), nullptr);
  if (bytes > of_frame) connection.unconfirmed->add(payload.subspan(begin, bytes - of_frame), slot);
  if (connection.unconfirmed->bytes() >= connection.look_at_bytes) confirm(connection);
}

void TcpTransport::confirm(Out& connection) {
  Unconfirmed& unconfirmed = *connection.unconfirmed;
  const size_t in_flight = connection.socket.unconfirmed();
  if (in_flight < unconfirmed.sent()) unconfirmed.confirm(unconfirmed.sent() - in_flight);
  connection.look_at_bytes = unconfirmed.bytes() + kKeptBetweenLooks;
}

void TcpTransport::broke(size_t index, const std::string& text, bool silent) {
  Out& connection = out(index);
  if (!connection.unconfirmed || connection.renewal.number == Renewal::kMost ||
      gone(peer_of(index))) {
    return mark_broken(index, text);
  }
  const int64_t now = now_ns();
  const uint64_t arrived = connection.unconfirmed->arrived();
  const auto is_long = [](int64_t ns) { return std::chrono::nanoseconds(ns) > network_timeout(); };
  const int64_t before = std::exchange(connection.broke_ns, now);
  if (before == 0 || is_long(now - before) || arrived > connection.arrived) {
    connection.vain_since_ns = now;
    connection.arrived = arrived;
  } else if (is_long(now - connection.vain_since_ns)) {
    return mark_broken(index, text);  // repeated connections brought no progress
  }
  connection.socket.reset();
  connection.outage = {};
  connection.position_bytes = 0;
  ++connection.renewal.number;
  if (silent) ++connection.renewal.detours;
  if (!std::exchange(connection.resumes, true)) count_queued(index, 1);
  hooks_.open(peer_of(index), lane_of(index), connection.renewal);
}

bool TcpTransport::resume(size_t index) {
  Out& connection = out(index);
  if (!connection.socket || !receive_position(index)) return false;
  Unconfirmed& unconfirmed = *connection.unconfirmed;
  for (auto bytes = unconfirmed.next(); !bytes.empty(); bytes = unconfirmed.next()) {
    const ssize_t sent = connection.socket.send(bytes);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) {
        broke(index, cat("sending failed: ", std::strerror(errno)), is_silence(errno));
      }
      return false;
    }
    unconfirmed.advance(static_cast<size_t>(sent));
    bytes_moved_ = true;
  }
  connection.resumes = false;
  count_queued(index, -1);
  return true;
}

// Reads the reader's position. The reader closes a new connection that it does not need; this is
// not treated as a failure of the network.
bool TcpTransport::receive_position(size_t index) {
  Out& connection = out(index);
  const std::span<std::byte> rest =
      std::span(connection.position).subspan(connection.position_bytes);
  if (rest.empty()) return true;
  const ssize_t got = connection.socket.receive(rest.data(), rest.size());
  if (got <= 0) {
    if (got == 0) {
      mark_broken(index, "the other side closed the connection");
    } else if (errno == EBADMSG) {
      mark_corrupted(index, "a TLS record is damaged or forged");
    } else if (errno != EAGAIN && errno != EINTR) {
      broke(index, cat("receiving failed: ", std::strerror(errno)), is_silence(errno));
    }
    return false;
  }
  connection.position_bytes += static_cast<size_t>(got);
  if (connection.position_bytes < connection.position.size()) return false;
  Position position{};
  std::memcpy(&position, connection.position.data(), sizeof(position));
  if (!check_position(index, position)) return false;
  if (!connection.unconfirmed->rewind(position.bytes)) {
    mark_broken(index, "confirmed bytes were lost, so the connection cannot be resumed");
    return false;
  }
  bytes_moved_ = true;
  return true;
}

void TcpTransport::look_at_links() {
  const int64_t now = now_ns();
  next_look_ns_ = now + kLookAgainNs;
  look_is_due_ = false;
  for (const size_t i : out_.used()) {
    if (!out(i).broken) check_connection(i, now);
  }
  for (const size_t i : in_.used()) {
    if (in(i).waits && gone(peer_of(i))) mark_broken(in(i), peer_of(i), in(i).cause);
  }
}

void TcpTransport::check_connection(size_t index, int64_t now) {
  Out& connection = out(index);
  if (connection.resumes && gone(peer_of(index))) {
    return mark_broken(index, "the peer is gone, so the connection is not resumed");
  }
  if (!connection.socket) return;
  const std::string outage =
      connection.outage.look(connection.socket.get(), now, network_timeout());
  if (!outage.empty()) return broke(index, outage, true);
  if (!connection.unconfirmed || awaits_position(connection)) return;
  confirm(connection);
  if (connection.unconfirmed->bytes() == 0) return;
  pollfd state{.fd = connection.socket.get(), .events = 0, .revents = 0};
  if (::poll(&state, 1, 0) == 0) return;
  int error = 0;
  socklen_t length = sizeof(error);
  ::getsockopt(state.fd, SOL_SOCKET, SO_ERROR, &error, &length);
  broke(index, cat("the connection ended: ", std::strerror(error != 0 ? error : ECONNRESET)),
        is_silence(error));
}

bool TcpTransport::settled() {
  if (now_ns() >= next_look_ns_) look_at_links();
  return std::ranges::none_of(out_.used(), [this](size_t i) {
    const Out& connection = out(i);
    return connection.unconfirmed && !connection.broken && connection.socket &&
           connection.socket.unconfirmed() > 0 && Outage::in_flight(connection.socket.get());
  });
}

// ---- the reader's side

// Takes the sender's next connection. A connection with the number of the present one is taken as
// well, because the sender may have tried twice.
void TcpTransport::take_next(size_t index, int number, ByteStream socket) {
  In& connection = in(index);
  if (connection.broken || number == 0 || number < connection.number) return;
  if (connection.socket) {
    drain(connection);
    ready_set_.forget(connection.socket.get(), connection.ready);
  }
  const bool first = !connection.staging;
  if (first) connection.staging = std::make_unique_for_overwrite<std::byte[]>(kStagingBytes);
  connection.socket = std::move(socket);
  connection.number = number;
  connection.ended = false;
  connection.waits = false;
  if (first) {
    watch_ready_set(index);
  } else if (incoming_ > kFewConnections) {
    ready_set_.watch(connection.socket.get(), connection.ready);
  }
  // A new socket's buffer has room for the position.
  Position position{connection.received, 0};
  if (connection.checked) position.hash = hash_of(position);
  if (connection.socket.send(std::as_bytes(std::span(&position, 1))) != sizeof(position)) {
    wait_for_next(connection, cat("sending failed: ", std::strerror(errno)));
  }
}

// Reads all remaining bytes. The sender does not resend them, because they were confirmed.
void TcpTransport::drain(In& connection) {
  std::vector<std::byte>& late = connection.late;
  ssize_t got = 0;
  do {
    const size_t before = late.size();
    late.resize(before + kDrainBytes);
    got = connection.socket.receive(late.data() + before, kDrainBytes);
    late.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    connection.received += static_cast<uint64_t>(std::max<ssize_t>(got, 0));
  } while (got > 0);
}

size_t TcpTransport::receive_late(In& connection, std::byte* memory, size_t limit) {
  const size_t bytes = std::min(limit, connection.late.size() - connection.late_begin);
  std::memcpy(memory, connection.late.data() + connection.late_begin, bytes);
  connection.late_begin += bytes;
  connection.starved = bytes < limit;
  bytes_moved_ = true;
  if (connection.late_begin == connection.late.size()) {
    connection.late = {};
    connection.late_begin = 0;
  }
  return bytes;
}

void TcpTransport::broke(In& connection, int peer, const std::string& text) {
  if (!resumed(peer)) return mark_broken(connection, peer, text);
  wait_for_next(connection, text);
}

void TcpTransport::wait_for_next(In& connection, const std::string& cause) {
  ready_set_.forget(connection.socket.get(), connection.ready);
  connection.waits = true;
  connection.cause = cause;
}

}  // namespace tutti
