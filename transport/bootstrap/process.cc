#include "transport/bootstrap/process.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>

namespace tutti::bootstrap {

namespace {
std::atomic<pid_t> current = 0;
}

pid_t current_process() {
  // The C library no longer caches the pid; asking the kernel is too slow for every call.
  [[maybe_unused]] static const int watching = [] {
    current = ::getpid();
    return ::pthread_atfork(nullptr, nullptr, [] { current = ::getpid(); });
  }();
  return current.load(std::memory_order_relaxed);
}

}  // namespace tutti::bootstrap
