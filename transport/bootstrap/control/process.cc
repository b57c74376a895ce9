#include "transport/bootstrap/control/process.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>

namespace tutti::bootstrap {

namespace {

// The pid is cached, because glibc no longer caches it, and a system call is too slow for every
// call.
std::atomic<pid_t> current = ::getpid();
[[maybe_unused]] const int watching =
    ::pthread_atfork(nullptr, nullptr, [] { current = ::getpid(); });

}  // namespace

pid_t current_process() { return current.load(std::memory_order_relaxed); }

}  // namespace tutti::bootstrap
