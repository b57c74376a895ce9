#include "tools/launcher/event_loop.h"

#include <poll.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tutti::tool {

void EventLoop::watch(int fd, std::function<void()> on_ready) {
  watched_[fd] = std::move(on_ready);
}

void EventLoop::unwatch(int fd) { watched_.erase(fd); }

void EventLoop::run_once(std::chrono::milliseconds at_most) {
  std::vector<pollfd> polled;
  for (const auto& [fd, on_ready] : watched_) polled.push_back({fd, POLLIN, 0});
  const int ready = ::poll(polled.data(), polled.size(), static_cast<int>(at_most.count()));
  if (ready < 0 && errno != EINTR) throw system_error("poll", errno);
  if (ready <= 0) return;
  for (const pollfd& one : polled) {
    if (one.revents == 0) continue;
    const auto found = watched_.find(one.fd);
    if (found == watched_.end()) continue;  // an earlier callback has removed it
    // a copy, because the callback may unwatch itself
    const std::function<void()> on_ready = found->second;
    on_ready();
  }
}

}  // namespace tutti::tool
