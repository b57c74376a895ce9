#include "transport/wait_set.h"

#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <ctime>

#include "base/error.h"

namespace tutti {

namespace {

timespec to_timespec(std::chrono::microseconds time) {
  return {.tv_sec = time.count() / 1'000'000, .tv_nsec = time.count() % 1'000'000 * 1000};
}

struct Address {
  sockaddr_un name{};
  socklen_t length = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&name); }
};

// Returns an address in the abstract namespace.
Address address_of(const std::string& name) {
  Address address;
  address.name.sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof(address.name.sun_path) - 1);
  std::memcpy(address.name.sun_path + 1, name.data(), length);
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

}  // namespace

void wake_sleepers(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

WaitSet::WaitSet(const std::string& name) : name_(name) {
  if (name.empty()) return;
  bell_ = Fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  Address address = address_of(name);
  if (!bell_ || ::bind(bell_.get(), address.get(), address.length) != 0) {
    throw system_error("cannot create the socket by which peers wake this rank", errno,
                       {.cause = "this process has reached its limit of open files (ulimit -n)"});
  }
}

void WaitSet::begin() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = false;
  }
  on_descriptors_ = true;
  descriptors_.assign(1, {bell_.get(), POLLIN, 0});
  longest_ = std::chrono::microseconds::max();
  in_use_.store(true);
  // Writes that peers made before they checked for sleepers are visible from here on.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void WaitSet::add_word(std::atomic<uint32_t>& word, uint32_t value) {
  const std::lock_guard lock(mutex_);
  word_ = &word;
  value_ = value;
}

bool WaitSet::sleep(std::chrono::microseconds at_most) {
  bool on_word = false;
  {
    const std::lock_guard lock(mutex_);
    if (woken_) return true;
    on_word = word_ != nullptr;
  }
  // A sleep shortened by no_longer_than() counts as a spurious wake.
  if (longest_ < at_most) return sleep_on_descriptors(longest_) || true;
  return on_word ? sleep_on_word(at_most) : sleep_on_descriptors(at_most);
}

// Sleeps on the word. Only the sleeper changes word_ and value_.
bool WaitSet::sleep_on_word(std::chrono::microseconds at_most) {
  const timespec timeout = to_timespec(at_most);
  return ::syscall(SYS_futex, word_, FUTEX_WAIT, value_, &timeout, nullptr, 0) == 0 ||
         errno != ETIMEDOUT;
}

bool WaitSet::sleep_on_descriptors(std::chrono::microseconds at_most) {
  const timespec timeout = to_timespec(at_most);
  const int ready = ::ppoll(descriptors_.data(), descriptors_.size(), &timeout, nullptr);
  if (ready > 0 && descriptors_[0].revents != 0) {
    std::array<char, 1> ring;
    while (::recv(bell_.get(), ring.data(), ring.size(), 0) >= 0) {
    }
  }
  return ready != 0;
}

void WaitSet::end() {
  const std::lock_guard lock(mutex_);
  word_ = nullptr;
  in_use_.store(false, std::memory_order_relaxed);
}

void WaitSet::wake() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!in_use()) return;
  const std::lock_guard lock(mutex_);
  woken_ = true;
  if (word_ != nullptr) {
    word_->fetch_add(1, std::memory_order_seq_cst);
    wake_sleepers(*word_);
  } else {
    ring(name_);
  }
}

void WaitSet::ring(const std::string& name) const {
  Address address = address_of(name);
  const char byte = 0;
  ::sendto(bell_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL, address.get(), address.length);
}

}  // namespace tutti
