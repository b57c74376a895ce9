// A rank's compute threads: helpers that compute together with the calling thread.
//
// Work is divided into parts by its shape alone, never by the number of threads. Each part is
// computed by one thread, whichever is free. Every element of a result therefore comes from the
// same instructions in the same order for every number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace tutti::training {

// One thread at a time submits work. Helpers spin for some 20 us after their last part, and then
// sleep. The caller never waits for a helper that has not begun a part: with more threads than
// processors, or without helpers (in a child of fork()), the caller computes all parts.
class ThreadPool {
 public:
  // Starts `threads` - 1 helpers, with the caller's affinity. Throws Error(system) if the system
  // refuses threads.
  explicit ThreadPool(int threads = 1);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }

  // Returns the pool that parallel_for() uses on the calling thread, or null.
  static ThreadPool* current();
  // Returns the index of the calling thread in its pool: 0 for the caller of run() and for threads
  // that belong to no pool.
  static int thread_index();

  using Part = void(void* body, int64_t part);
  // Calls part(body, i) for each i in [0, parts). Blocks until all calls have returned; if a call
  // threw an exception, rethrows it then.
  void run(int64_t parts, Part* part, void* body);

 private:
  friend class UseThreads;

  void help(int index);
  void end();
  bool compute_one();
  void wait_for_parts();

  // The current work. It is written while no part is left. A thread reads it before it takes a
  // part; taking the part fails if the call has changed in between.
  std::atomic<Part*> part_ = nullptr;
  std::atomic<void*> body_ = nullptr;
  std::atomic<int64_t> parts_ = 0;
  // Upper half: index of the call (calls_). Lower half: count of parts that no thread has taken.
  alignas(64) std::atomic<uint64_t> left_ = 0;
  alignas(64) std::atomic<uint32_t> done_ = 0;
  // Counts calls; helpers sleep on it.
  alignas(64) std::atomic<uint32_t> calls_ = 0;
  std::atomic<bool> ends_ = false;
  std::mutex failed_;
  std::exception_ptr failure_;
  std::vector<std::thread> helpers_;
};

// Makes parallel_for() on this thread use the pool's threads while the object exists.
class UseThreads {
 public:
  explicit UseThreads(ThreadPool& pool);
  ~UseThreads();
  UseThreads(const UseThreads&) = delete;
  UseThreads& operator=(const UseThreads&) = delete;

 private:
  ThreadPool* before_;
};

// Calls body(part) for each part in [0, parts) on the threads of the calling thread's pool, in any
// order. Without a pool, calls them in order on the calling thread. No pool is active inside a
// part, so nested calls are serial.
template <typename Body>
void parallel_for(int64_t parts, Body&& body) {
  ThreadPool* const pool = ThreadPool::current();
  if (pool == nullptr || parts <= 1) {
    for (int64_t part = 0; part < parts; ++part) body(part);
    return;
  }
  using Pointed = std::remove_reference_t<Body>;
  pool->run(
      parts, [](void* at, int64_t part) { (*static_cast<Pointed*>(at))(part); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

// Calls body(first, count) for ranges of up to `grain` elements that together cover [0, size).
template <typename Body>
void parallel_ranges(int64_t size, int64_t grain, Body&& body) {
  parallel_for((size + grain - 1) / grain, [&](int64_t part) {
    const int64_t first = part * grain;
    body(first, std::min(grain, size - first));
  });
}

// Like parallel_ranges() for the rows of a matrix with `cols` columns, in ranges of some 16 Ki
// elements.
template <typename Body>
void parallel_rows(int64_t rows, int64_t cols, Body&& body) {
  constexpr int64_t kElements = 1 << 14;
  parallel_ranges(rows, std::max<int64_t>(1, kElements / std::max<int64_t>(1, cols)), body);
}

// Returns the maximum number of threads that compute parts, which is the number of per-thread
// buffers needed.
inline int threads_here() {
  const ThreadPool* const pool = ThreadPool::current();
  return pool == nullptr ? 1 : pool->threads();
}

}  // namespace tutti::training
