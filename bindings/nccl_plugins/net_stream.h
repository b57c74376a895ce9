// One socket of a connection. It carries slices of messages, each behind a header. Slices are sent
// from the caller's memory and received directly into the caller's memory. Never blocks.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/fd.h"
#include "base/network_timeout.h"
#include "transport/tcp/outage.h"

namespace tutti::nccl {

// A posted receive, as the receiver announces it to the sender.
struct Post {
  uint32_t magic = 0x54504f53;
  int32_t tag = 0;
  uint64_t number = 0;  // sequence number of the receive, to which slices refer
  uint64_t bytes = 0;   // capacity of the receive
};

// The header of a part of a message.
struct Slice {
  uint32_t magic = 0x54534c49;
  uint32_t reserved = 0;
  uint64_t number = 0;  // Post::number
  uint64_t total = 0;   // size of the message
  uint64_t offset = 0;  // offset of this part in the message
  uint64_t bytes = 0;
};

enum class Moved { nothing, some, end };  // `end`: the connection ended (error 0) or failed

class SendStream {
 public:
  explicit SendStream(Fd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }
  bool idle() const { return left_ == 0; }
  // Starts to send a slice; requires idle(). `payload` must stay valid until the slice has been
  // sent.
  void begin(const Slice& slice, const std::byte* payload);
  Moved advance(int& error);
  // Checks the connection. Returns an error text if sent bytes have not been confirmed for
  // network_timeout(), otherwise an empty text.
  std::string outage(int64_t now_ns) {
    return outage_.look(socket_.get(), now_ns, network_timeout());
  }

 private:
  Fd socket_;
  Slice slice_;
  const std::byte* payload_ = nullptr;
  uint64_t left_ = 0;  // remaining bytes of header and payload
  Outage outage_;
};

class ReceiveStream {
 public:
  explicit ReceiveStream(Fd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }
  bool ended() const { return ended_; }
  void set_ended() { ended_ = true; }
  // Returns true if no part of a slice has arrived.
  bool between_slices() const { return header_bytes_ == 0; }
  // Returns the slice whose payload has no destination yet; null if there is none. The slice must
  // be placed before the next advance().
  const Slice* arrived() const { return !placed_ && header_is_whole() ? &slice_ : nullptr; }
  void place(std::byte* destination);
  // Returns true once the payload is complete, so that the next slice can follow.
  bool complete() const { return placed_ && payload_left_ == 0; }
  Slice take();
  Moved advance(int& error);

 private:
  bool header_is_whole() const { return header_bytes_ == sizeof(Slice); }

  Fd socket_;
  Slice slice_;
  size_t header_bytes_ = 0;
  std::byte* destination_ = nullptr;
  uint64_t payload_left_ = 0;
  bool placed_ = false;
  bool ended_ = false;
};

}  // namespace tutti::nccl
