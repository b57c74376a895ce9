#include "transport/bootstrap/handshake/poll_set.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"

namespace tutti::bootstrap {

void PollSet::add(int fd, short events, Handler handler) {
  entries_.push_back({.fd = fd, .events = events, .revents = 0});
  handlers_.push_back(std::move(handler));
}

void PollSet::wake_at(Clock::time_point when) { wake_at_ = std::min(wake_at_, when); }

void PollSet::run() {
  int timeout = -1;
  if (wake_at_ != Clock::time_point::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(wake_at_ - Clock::now());
    timeout = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
  }
  const int ready = ::poll(entries_.data(), entries_.size(), timeout);
  if (ready < 0 && errno != EINTR) throw system_error("poll of the control channel", errno);
  const std::vector<pollfd> entries = std::exchange(entries_, {});
  const std::vector<Handler> handlers = std::exchange(handlers_, {});
  wake_at_ = Clock::time_point::max();
  for (size_t i = 0; ready > 0 && i < entries.size(); ++i) {
    if (entries[i].revents != 0) handlers[i](entries[i].revents);
  }
}

}  // namespace tutti::bootstrap
