// A connection that carries frames and never blocks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/deadline.h"
#include "transport/stream/byte_stream.h"

namespace tutti::bootstrap {

class Link {
 public:
  Link() = default;  // makes a link that is not connected yet; its frames are queued
  explicit Link(ByteStream socket) : socket_(std::move(socket)) {}

  // Connects the link; queued frames are sent first.
  void connect(ByteStream socket) { socket_ = std::move(socket); }
  // Closes permanently: later frames are dropped.
  void close() {
    socket_.reset();
    first_.reset();
    closed_ = true;
  }

  bool connected() const { return static_cast<bool>(socket_); }
  // Returns true if the link is or was connected.
  bool was_connected() const { return connected() || closed_; }
  bool encrypted() const { return socket_.encrypted(); }
  int fd() const { return socket_.get(); }
  bool wants_to_write() const { return connected() && (first_ || sent_ < outgoing_.size()); }

  // Sends `frame` before all other frames. Several links may share one large frame.
  void send_first(std::shared_ptr<const std::string> frame) { first_ = std::move(frame); }
  void send(std::string_view frame);
  // Sends a frame that the caller repeats until it is answered. Once `most` such frames have been
  // sent since anything arrived from the other side, most further ones are dropped. Otherwise the
  // system's buffer would fill up if the other process is stopped and reads nothing, and that would
  // look like a broken connection.
  void ask(std::string_view frame, size_t most);
  // Writes as much as possible without blocking. receive() reports a broken connection.
  void flush();
  // Reads everything available and calls `on_frame` with the body of each complete frame.
  // `on_frame` returns false for a malformed frame, which ends the connection. Returns false once
  // the connection has ended; error() then has the reason.
  bool receive(const std::function<bool(std::string_view body)>& on_frame, size_t limit);
  // Returns the errno of the end: 0 for EOF, EPROTO for a frame that is too long or malformed,
  // EBADMSG for corrupted bytes.
  int error() const { return error_; }
  // Announces to the other side that this rank sends nothing more.
  void shut_down();
  // Returns true once the other side's system has received everything.
  bool arrived() const;

 private:
  bool take_frames(const std::function<bool(std::string_view body)>& on_frame, size_t limit);

  ByteStream socket_;
  std::string incoming_;
  std::shared_ptr<const std::string> first_;  // kept until it has been sent
  std::string outgoing_;
  size_t sent_ = 0;   // bytes of first_, then of outgoing_
  size_t asked_ = 0;  // number of ask() frames since anything arrived
  Clock::time_point last_asked_{};
  bool closed_ = false;
  int error_ = 0;
};

}  // namespace tutti::bootstrap
