// The hashes in frames (see tcp_transport.h).
#include <cstddef>

#include "base/text.h"
#include "transport/integrity/hash.h"
#include "transport/tcp/socket_ends.h"
#include "transport/tcp/tcp_transport.h"

namespace tutti {

namespace {

constexpr uint32_t kMagic = 0x49545554;  // the characters "TUTI"

std::string way_to(const ByteStream& socket) {
  return cat(", from ", peer_end(socket.get()), " to ", own_end(socket.get()));
}

}  // namespace

// Returns the hash of a frame. It covers the frame's number, by which a missing, repeated or
// reordered frame is detected.
uint64_t TcpTransport::hash_of(const Frame& frame, uint64_t number) {
  return integrity_hash(std::as_bytes(std::span(&frame, 1)).first(offsetof(Frame, hash)), number);
}

uint64_t TcpTransport::hash_of(const Position& position) {
  return integrity_hash(std::as_bytes(std::span(&position.bytes, 1)));
}

TcpTransport::Frame TcpTransport::make_frame(Out& connection, const MessageHeader& header,
                                             uint64_t payload_hash) {
  Frame frame{kMagic, kWireVersion, header, 0, 0};
  if (!connection.checked) return frame;
  frame.payload_hash = payload_hash;
  frame.hash = hash_of(frame, connection.frames++);
  return frame;
}

// Returns the hash of the payload, computed once for all peers; 0 if no peer's connection is
// checked.
uint64_t TcpTransport::hash_for_peers(std::span<const std::byte> payload) {
  for (const int peer : peers_) {
    if (out(peer, lane_).checked) return integrity_hash(payload);
  }
  return 0;
}

bool TcpTransport::check_frame(In& connection, int peer) {
  const Frame& frame = connection.frame;
  if (connection.checked && frame.hash != hash_of(frame, connection.frames++)) {
    mark_corrupted(connection, peer,
                   cat("the header of message ", connection.frames, " does not match its hash"));
    return false;
  }
  if (frame.magic != kMagic || frame.version != kWireVersion ||
      frame.header.bytes > Slots::kBytes) {
    mark_corrupted(connection, peer, "the received bytes are not a Tutti message");
    return false;
  }
  return true;
}

bool TcpTransport::check_payload(In& connection, int peer, std::span<const std::byte> payload) {
  if (!connection.checked || connection.verified) return true;
  connection.verified = integrity_hash(payload) == connection.frame.payload_hash;
  if (!connection.verified) {
    mark_corrupted(connection, peer,
                   cat("the ", payload.size(), " bytes of message ", connection.frames, " (slice ",
                       connection.frame.header.slice, " of call ", connection.frame.header.call,
                       ") do not match their hash"));
  }
  return connection.verified;
}

bool TcpTransport::check_position(size_t outgoing, const Position& position) {
  if (!out(outgoing).checked || position.hash == hash_of(position)) return true;
  mark_corrupted(outgoing, "the number of bytes from which to resume does not match its hash");
  return false;
}

void TcpTransport::mark_corrupted(In& connection, int peer, const std::string& text) {
  if (std::exchange(connection.broken, true)) return;
  hooks_.corrupted(peer, text + way_to(connection.socket));
}

void TcpTransport::mark_corrupted(size_t outgoing, const std::string& text) {
  if (give_up(outgoing)) hooks_.corrupted(peer_of(outgoing), text + way_to(out(outgoing).socket));
}

}  // namespace tutti
