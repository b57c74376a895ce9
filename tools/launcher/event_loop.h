// Waits for descriptors and calls functions when they are ready. Single-threaded.
#pragma once

#include <chrono>
#include <functional>
#include <map>

namespace tutti::tool {

class EventLoop {
 public:
  // Calls `on_ready` whenever `fd` is readable or hung up, until unwatch(). `on_ready` may watch
  // and unwatch any descriptor, including its own. The caller keeps ownership of `fd`.
  void watch(int fd, std::function<void()> on_ready);
  void unwatch(int fd);
  // Waits until a descriptor is ready or `at_most` has passed, and calls the callback of each ready
  // descriptor.
  void run_once(std::chrono::milliseconds at_most);

 private:
  std::map<int, std::function<void()>> watched_;
};

}  // namespace tutti::tool
