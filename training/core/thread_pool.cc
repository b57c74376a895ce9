#include "training/core/thread_pool.h"

#include <utility>

#include "base/start_thread.h"

namespace tutti::training {
namespace {

constexpr int kSpins = 1000;  // takes some 20 us
constexpr int kCallShift = 32;
constexpr uint64_t kLeftMask = (uint64_t{1} << kCallShift) - 1;

thread_local ThreadPool* current_pool = nullptr;
thread_local int own_index = 0;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool* ThreadPool::current() { return current_pool; }
int ThreadPool::thread_index() { return own_index; }

UseThreads::UseThreads(ThreadPool& pool)
    : before_(std::exchange(current_pool, pool.threads() > 1 ? &pool : nullptr)) {}
UseThreads::~UseThreads() { current_pool = before_; }

ThreadPool::ThreadPool(int threads) {
  try {
    for (int index = 1; index < threads; ++index) {
      helpers_.push_back(start_thread("a rank's arithmetic", [this, index] { help(index); }));
    }
  } catch (...) {
    end();
    throw;
  }
}

ThreadPool::~ThreadPool() { end(); }

void ThreadPool::end() {
  ends_ = true;
  calls_.fetch_add(1);
  calls_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadPool::run(int64_t parts, Part* part, void* body) {
  part_.store(part, std::memory_order_relaxed);
  body_.store(body, std::memory_order_relaxed);
  parts_.store(parts, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  const uint32_t call = calls_.load(std::memory_order_relaxed) + 1;
  left_.store(uint64_t{call} << kCallShift | static_cast<uint64_t>(parts),
              std::memory_order_release);
  calls_.store(call);
  calls_.notify_all();
  current_pool = nullptr;
  while (compute_one()) {
  }
  wait_for_parts();
  current_pool = this;
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

// Computes one part, if any is left. A thread that decrements `left_` has a part, and the caller of
// run() waits for it, so the fields of this call stay valid until the part is computed.
bool ThreadPool::compute_one() {
  uint64_t left = left_.load(std::memory_order_acquire);
  for (;;) {
    if ((left & kLeftMask) == 0) return false;
    Part* const part = part_.load(std::memory_order_relaxed);
    void* const body = body_.load(std::memory_order_relaxed);
    const int64_t parts = parts_.load(std::memory_order_relaxed);
    if (!left_.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {
      continue;
    }
    try {
      part(body, parts - static_cast<int64_t>(left & kLeftMask));
    } catch (...) {
      const std::lock_guard lock(failed_);
      if (!failure_) failure_ = std::current_exception();
    }
    if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(parts)) {
      done_.notify_one();
    }
    return true;
  }
}

void ThreadPool::wait_for_parts() {
  const auto parts = static_cast<uint32_t>(parts_.load(std::memory_order_relaxed));
  for (int spins = 0;; ++spins) {
    const uint32_t done = done_.load(std::memory_order_acquire);
    if (done == parts) return;
    if (spins < kSpins) {
      pause();
    } else {
      done_.wait(done, std::memory_order_acquire);
    }
  }
}

void ThreadPool::help(int index) {
  own_index = index;
  while (!ends_) {
    const uint32_t calls = calls_.load();
    for (int spins = 0; spins < kSpins;) {
      spins = compute_one() ? 0 : spins + 1;
      pause();
    }
    calls_.wait(calls);
  }
}

}  // namespace tutti::training
