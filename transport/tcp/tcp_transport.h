// TCP between the ranks of a communicator.
//
// A connection (sender, reader, lane) has one socket, which the sender opens on first use. Each
// connection is one FIFO, so several lanes are several TCP streams. A message is a frame, {magic,
// version, MessageHeader, two hashes}, and the payload. Payloads that need no arithmetic are
// received directly into the caller's memory.
//
// A checked connection (check.cc) has hashes in its frames. The reader verifies each header before
// using it, and each payload before payload() or read() returns it. A wrong hash is a permanent
// error: the reader's system has confirmed those bytes, so they cannot be sent again.
//
// A broken connection between hosts is resumed (resume.cc): the sender keeps the bytes that the
// reader's system has not confirmed, and opens another connection. There the reader first sends a
// Position, the total number of bytes that it has received from that sender and lane, and the
// sender continues from that byte. The connection counts as lost only if resuming fails.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "transport/lazy_table.h"
#include "transport/limits.h"
#include "transport/renewal.h"
#include "transport/stream/byte_stream.h"
#include "transport/tcp/outage.h"
#include "transport/tcp/ready_set.h"
#include "transport/tcp/slots.h"
#include "transport/tcp/unconfirmed.h"
#include "transport/transport.h"

namespace tutti {

class TcpTransport final : public Transport {
 public:
  struct Hooks {
    // Requests a connection to `peer` for `lane`; opened() later hands it over. Called once per
    // connection, and again each time that a resumed connection has broken.
    std::function<void(int peer, int lane, Renewal renewal)> open;
    // Reports that a connection to (`sending`) or from `peer` broke while it was needed, and is not
    // resumed. Called once per connection.
    std::function<void(int peer, bool sending, const std::string& text)> lost;
    // Reports that bytes from `peer` were corrupted in transit. Called once per connection, instead
    // of lost().
    std::function<void(int peer, const std::string& text)> corrupted;
    // Injects a fault: may change a payload after it was hashed. Empty: none.
    std::function<void(std::span<std::byte> payload)> damage = {};
    // Returns true if `peer` has left the job or died, so that connections to it are not resumed.
    // Empty: always false.
    std::function<bool(int peer)> gone = {};
  };

  // Properties of connections, which must be the same at both ends.
  struct Peers {
    std::span<const int> resumed;  // peers on other hosts, whose connections are resumed
    std::span<const int> checked;  // peers with hashed frames, unless the connection is encrypted
  };

  TcpTransport(int ranks, int lanes, Hooks hooks, const Peers& peers = {});
  static Limits limits(int ranks, int lanes);

  // Take a connected, non-blocking socket. accept() takes one that `peer` opened (`number`: see
  // Renewal); opened() takes one that Hooks::open requested. Thread-safe; the caller must then wake
  // the sleeper.
  void accept(int peer, int lane, int number, ByteStream socket);
  void opened(int peer, int lane, ByteStream socket);

  // Returns the outgoing connections, which have ended. Their bytes in flight still arrive while
  // the sockets are kept open. Nothing can be sent any more.
  std::vector<Fd> release_outgoing();
  // Returns false while peers have yet to confirm bytes in flight, which would have to be sent
  // again if the connection broke. Bytes that wait for a slow reader's window do not count. To be
  // called after end_sending().
  bool settled();

  std::byte* reserve(std::span<const int> peers, int lane, size_t bytes, int credit) override;
  void commit(const MessageHeader& header) override;
  bool write(int peer, int lane, const MessageHeader& header, std::span<const std::byte> payload,
             int credit) override;
  bool can_lend(std::span<const int>, std::span<const std::byte>) const override { return false; }
  int lend(std::span<const int>, int, const MessageHeader&, std::span<const std::byte>) override {
    return -1;
  }
  bool take_back(int) override { return true; }
  void revoke() override {}
  std::vector<int> unsent() const override;
  bool collectives_sent() const override { return queued_ == queued_p2p_; }
  bool p2p_sent(int peer) const override {
    const Out* const connection = out_.find(index(peer, lanes_));
    return connection == nullptr || (connection->queue.empty() && !connection->resumes);
  }
  const MessageHeader* front(int peer, int lane) override;
  const std::byte* payload(int peer, int lane) override;
  bool read(int peer, int lane, std::span<std::byte> destination, Store store) override;
  void used(int, int, size_t) override {}
  bool release(int peer, int lane) override;
  void end_sending() override;
  bool ended(int peer, int lane) const override;
  bool progress() override;
  void arm(WaitSet& set) override;
  void watch(WaitSet& set) override;
  void disarm() override {}

 private:
  struct Frame {
    uint32_t magic;
    uint32_t version;
    MessageHeader header;
    uint64_t payload_hash;  // both hashes are 0 if the connection is not checked
    // Hash of all fields before it; the seed is the frame's number on the connection.
    uint64_t hash;
  };
  static_assert(sizeof(Frame) == 56);
  struct Position {
    uint64_t bytes;
    uint64_t hash;  // hash of `bytes`; 0 if the connection is not checked
  };
  static const size_t kStagingBytes;  // size of a staging buffer, one per incoming connection
  static constexpr size_t kFewConnections = 8;
  static constexpr int64_t kLookAgainNs = 1'000'000'000;
  // Interval of checks while a broken connection would have to be resumed.
  static constexpr int64_t kLookSoonNs = 50'000'000;

  using Slot = Slots::Slot;

  struct Outgoing {
    Frame frame;  // sent before the payload, which is in `slot`
    Slot* slot;
    size_t sent = 0;  // bytes of frame and payload already sent
  };

  struct Out {
    ByteStream socket;
    bool asked_for = false;
    bool checked = false;
    uint64_t frames = 0;  // number of frames so far, if checked
    Outage outage;
    std::deque<Outgoing> queue;
    bool broken = false;
    std::unique_ptr<Unconfirmed> unconfirmed;  // null: the connection is not resumed after a break
    // True from a break until all lost bytes have been sent again. During this time the connection
    // counts as a queued message.
    bool resumes = false;
    int64_t broke_ns = 0;       // time of the last break; 0: never
    int64_t vain_since_ns = 0;  // since then, no connection has delivered more than `arrived`
    uint64_t arrived = 0;
    // Once this many bytes are kept, the system is asked which of them are confirmed.
    size_t look_at_bytes = 0;
    Renewal renewal;
    // The bytes of the reader's Position that have arrived; `position_bytes` is their number.
    std::array<std::byte, sizeof(Position)> position = {};
    size_t position_bytes = 0;
  };

  // State of an incoming connection. `staging` holds received bytes from `begin`, where the oldest
  // message starts, to `end`, where the next bytes are received. The buffer is as large as any
  // message, but untouched pages use no memory.
  struct In {
    ByteStream socket;
    std::unique_ptr<std::byte[]> staging;
    size_t begin = 0;
    size_t end = 0;
    bool checked = false;
    uint64_t frames = 0;  // number of frames so far, if checked
    bool has_frame = false;
    Frame frame = {};
    bool verified = false;  // true: the frame's payload was verified
    size_t placed = 0;      // payload bytes already copied by read()
    bool starved = false;   // true: since arm(), a read wanted more bytes than had arrived
    ReadySet::Entry ready;
    bool ended = false;  // true: the sender has sent its last message
    bool broken = false;
    // Only for connections that are resumed:
    bool waits = false;  // true: the connection broke, and the sender should open the next one
    std::string cause;
    int number = 0;         // see Renewal
    uint64_t received = 0;  // total bytes received on all connections so far
    // Bytes of an earlier connection that were unread when the next one arrived.
    std::vector<std::byte> late;
    size_t late_begin = 0;  // beginning of the unread part of `late`
  };

  Out& out(size_t connection) {
    return out_.get(connection, [&](Out& made) {
      const auto peer = static_cast<size_t>(peer_of(connection));
      if (resumed_[peer]) made.unconfirmed = std::make_unique<Unconfirmed>(slots_);
      made.checked = checked_[peer];
    });
  }
  In& in(size_t connection) {
    return in_.get(connection, [&](In& made) {
      made.checked = checked_[static_cast<size_t>(peer_of(connection))];
    });
  }
  Out& out(int peer, int lane) { return out(index(peer, lane)); }
  In& in(int peer, int lane) { return in(index(peer, lane)); }
  size_t index(int peer, int lane) const { return static_cast<size_t>(peer) * (lanes_ + 1) + lane; }
  bool is_p2p(size_t connection) const { return lane_of(connection) == lanes_; }
  int peer_of(size_t connection) const { return static_cast<int>(connection) / (lanes_ + 1); }
  int lane_of(size_t connection) const { return static_cast<int>(connection) % (lanes_ + 1); }

  // Returns true while a resumed connection waits for the reader's Position. Nothing has been sent
  // on the new socket yet.
  static bool awaits_position(const Out& connection) {
    return connection.resumes && connection.position_bytes < connection.position.size();
  }
  static bool has_unconfirmed(const Out& connection) {
    return connection.unconfirmed && connection.unconfirmed->bytes() > 0 && connection.socket &&
           !connection.broken;
  }
  bool resumed(int peer) const { return resumed_[static_cast<size_t>(peer)]; }
  bool open(int peer, int lane);
  bool gone(int peer) const { return hooks_.gone && hooks_.gone(peer); }
  void count_queued(size_t connection, int more) {
    queued_ += more;
    if (is_p2p(connection)) queued_p2p_ += more;
  }
  void enqueue(size_t connection, Outgoing message);
  void dequeue(size_t connection);
  void flush(size_t connection);
  // Writes frame and payload, except the first `sent` bytes, which have been sent already. Updates
  // `sent`. Returns false if the socket is full or broken. `slot`: the slot that holds the payload
  // unchanged; null: none.
  bool push(size_t connection, Frame& frame, std::span<const std::byte> payload, Slot* slot,
            size_t& sent);
  void hand_over(bool outgoing, size_t connection, int number, ByteStream socket);
  void take_handed_over();
  void watch_ready_set(size_t connection);

  // Defined in check.cc:
  static uint64_t hash_of(const Frame& frame, uint64_t number);
  static uint64_t hash_of(const Position& position);
  static Frame make_frame(Out& connection, const MessageHeader& header, uint64_t payload_hash);
  uint64_t hash_for_peers(std::span<const std::byte> payload);
  // Checks the frame's hash. Returns false if the connection is corrupted.
  bool check_frame(In& connection, int peer);
  bool check_payload(In& connection, int peer, std::span<const std::byte> payload);
  bool check_position(size_t outgoing, const Position& position);
  void mark_corrupted(In& connection, int peer, const std::string& text);
  void mark_corrupted(size_t outgoing, const std::string& text);

  // Defined in resume.cc: gives up resuming a connection. Returns false if it had already been
  // given up.
  bool give_up(size_t outgoing);
  void mark_broken(size_t outgoing, const std::string& text);
  void mark_broken(In& connection, int peer, const std::string& text);
  // Keeps the part of a frame and its payload that has just been sent.
  static void keep(Out& connection, std::span<const std::byte> frame,
                   std::span<const std::byte> payload, Slot* slot, size_t from, size_t bytes);
  static void confirm(Out& connection);
  // Handles a break. `silent`: no byte was confirmed, so the network may be down.
  void broke(size_t connection, const std::string& text, bool silent);
  // Sends the lost bytes again. Returns true once all of them have been sent.
  bool resume(size_t connection);
  bool receive_position(size_t connection);
  void look_at_links();
  void check_connection(size_t connection, int64_t now);
  void take_next(size_t connection, int number, ByteStream socket);
  void drain(In& connection);
  size_t receive_late(In& connection, std::byte* memory, size_t limit);
  void broke(In& connection, int peer, const std::string& text);
  void wait_for_next(In& connection, const std::string& cause);

  // Receives up to `limit` bytes into `memory`; returns 0 if there are none, or the connection
  // broke.
  size_t receive(In& connection, int peer, std::byte* memory, size_t limit);
  void stage(In& connection, int peer, size_t wanted);

  const int lanes_;
  const Hooks hooks_;
  Slots slots_;
  std::vector<bool> resumed_;  // by peer
  std::vector<bool> checked_;  // by peer
  LazyTable<Out> out_;
  LazyTable<In> in_;
  ReadySet ready_set_;
  size_t incoming_ = 0;
  size_t queued_ = 0;      // number of messages in all queues
  size_t queued_p2p_ = 0;  // number of point-to-point messages in all queues

  std::span<const int> peers_;
  int lane_ = 0;
  Slot* slot_ = nullptr;
  bool ends_sending_ = false;

  struct HandedOver {
    bool outgoing;
    size_t connection;
    int number;
    ByteStream socket;
  };
  std::mutex handed_over_mutex_;
  std::vector<HandedOver> handed_over_;
  std::atomic<bool> has_handed_over_{false};
  int64_t next_look_ns_ = 0;  // time of the next look_at_links()
  bool look_is_due_ = false;
  bool bytes_moved_ = false;  // true: bytes were sent or received since the last progress()
};

}  // namespace tutti
