// A connection that carries frames, never blocking.
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
  Link() = default;  // not connected yet; frames wait
  explicit Link(ByteStream socket) : socket_(std::move(socket)) {}

  // Connects a link that was not; frames that were sent before go out first.
  void connect(ByteStream socket) { socket_ = std::move(socket); }
  // For good: what is sent from now on is dropped.
  void close() {
    socket_.reset();
    first_.reset();
    closed_ = true;
  }

  bool connected() const { return static_cast<bool>(socket_); }
  // Connected now or before.
  bool was_connected() const { return connected() || closed_; }
  bool encrypted() const { return socket_.encrypted(); }
  int fd() const { return socket_.get(); }
  bool wants_to_write() const { return connected() && (first_ || sent_ < outgoing_.size()); }

  // Before all else. Several links may share one that is large.
  void send_first(std::shared_ptr<const std::string> frame) { first_ = std::move(frame); }
  void send(std::string_view frame);
  // As send(), for what is asked again if no answer comes: dropped where nothing has come from the
  // other side since it was sent `most` of these, but for one now and then. A process that is
  // stopped reads nothing, and what its system has no room for looks like a broken connection.
  void ask(std::string_view frame, size_t most);
  // Writes what goes without waiting. A broken connection is left for receive() to find.
  void flush();
  // Reads all that is there and calls `on_frame` with the body of each complete frame (false from
  // it: the frame is nonsense). False when the connection ended; error() then says how.
  bool receive(const std::function<bool(std::string_view body)>& on_frame, size_t limit);
  // errno of the end, 0 for EOF alone, EPROTO for a frame that is too long or nonsense, EBADMSG
  // for bytes that were changed on the way.
  int error() const { return error_; }
  // Says that nothing more will be sent.
  void shut_down();
  // True when the other side's system has all that was sent.
  bool arrived() const;

 private:
  bool take_frames(const std::function<bool(std::string_view body)>& on_frame, size_t limit);

  ByteStream socket_;
  std::string incoming_;
  std::shared_ptr<const std::string> first_;  // until it is sent
  std::string outgoing_;
  size_t sent_ = 0;   // of first_, and then of outgoing_
  size_t asked_ = 0;  // since anything came
  Clock::time_point last_asked_{};
  bool closed_ = false;
  int error_ = 0;
};

}  // namespace tutti::bootstrap
