#include "transport/bootstrap/handshake/link.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/network_timeout.h"

namespace tutti::bootstrap {

namespace {

// Interval of repeated frames on a silent link, so long that a system buffer holds the frames of
// several hours.
constexpr std::chrono::seconds kBetweenUnheard{30};

}  // namespace

void Link::send(std::string_view frame) {
  if (closed_) return;
  outgoing_.append(frame);
  flush();
}

void Link::ask(std::string_view frame, size_t most) {
  const Clock::time_point now = Clock::now();
  if (asked_ >= most && now - last_asked_ < kBetweenUnheard) return;
  ++asked_;
  last_asked_ = now;
  send(frame);
}

void Link::flush() {
  while (wants_to_write()) {
    const std::string& frames = first_ ? *first_ : outgoing_;
    const ssize_t sent = socket_.send(std::as_bytes(std::span(frames)).subspan(sent_));
    if (sent >= 0) {
      sent_ += static_cast<size_t>(sent);
      if (first_ && sent_ == first_->size()) {
        first_.reset();
        sent_ = 0;
      }
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      if (is_reset(errno)) error_ = errno;  // reported by the socket only once
      break;                                // the connection is broken: no peer will read the rest
    }
  }
  if (!connected()) return;
  first_.reset();
  outgoing_.clear();
  sent_ = 0;
}

bool Link::receive(const std::function<bool(std::string_view body)>& on_frame, size_t limit) {
  std::array<char, 16384> block;
  for (;;) {
    const ssize_t got = socket_.receive(block.data(), block.size());
    if (got > 0) {
      asked_ = 0;
      incoming_.append(block.data(), static_cast<size_t>(got));
      if (take_frames(on_frame, limit)) continue;
      error_ = EPROTO;
      return false;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got < 0) error_ = errno;
    return false;
  }
}

bool Link::take_frames(const std::function<bool(std::string_view body)>& on_frame, size_t limit) {
  size_t at = 0;
  uint32_t length = 0;
  bool good = true;
  while (good && incoming_.size() - at >= sizeof(length)) {
    std::memcpy(&length, incoming_.data() + at, sizeof(length));
    if (length == 0 || length > limit) return false;
    if (incoming_.size() - at - sizeof(length) < length) break;
    good = on_frame(std::string_view(incoming_).substr(at + sizeof(length), length));
    at += sizeof(length) + length;
  }
  incoming_.erase(0, at);
  return good;
}

void Link::shut_down() {
  flush();
  if (connected()) ::shutdown(socket_.get(), SHUT_WR);
}

bool Link::arrived() const {
  int bytes = 0;
  return ::ioctl(socket_.get(), SIOCOUTQ, &bytes) != 0 || bytes == 0;
}

}  // namespace tutti::bootstrap
