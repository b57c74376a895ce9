// Threads that compute together with the one that calls: a rank's.
//
// Work is cut into parts by its shape alone, never by the number of threads, and each part is
// computed by one thread, whichever is free. So an element of a result comes from the same
// instructions in the same order for every number of threads.
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

// One thread at a time gives it work. Helpers spin for some 20 us after their last part, and then
// sleep. Nobody waits for a helper that has not begun a part: where there are more threads than
// processors, or no helpers at all (a child of fork()), the caller computes all of them.
class ThreadPool {
 public:
  // Starts threads - 1 helpers, with the caller's affinity. Throws Error(system) if it cannot.
  explicit ThreadPool(int threads = 1);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }

  // The pool that parallel_for() takes on the calling thread; null: none.
  static ThreadPool* current();
  // Which of the pool's threads the calling one is, from 0 (the caller, and threads of no pool).
  static int thread_index();

  using Part = void(void* body, int64_t part);
  // part(body, i) for i in [0, parts). Returns when all are done; then throws what one of them has
  // thrown.
  void run(int64_t parts, Part* part, void* body);

 private:
  friend class UseThreads;

  void help(int index);
  void end();
  bool compute_one();
  void wait_for_parts();

  // What is to be done. Written while no part is left, read by threads that then take one.
  std::atomic<Part*> part_ = nullptr;
  std::atomic<void*> body_ = nullptr;
  std::atomic<int64_t> parts_ = 0;
  // The number of the call in the upper half, how many parts nobody has taken in the lower.
  alignas(64) std::atomic<uint64_t> left_ = 0;
  alignas(64) std::atomic<uint32_t> done_ = 0;
  // Counts calls; helpers sleep on it.
  alignas(64) std::atomic<uint32_t> calls_ = 0;
  std::atomic<bool> ends_ = false;
  std::mutex failed_;
  std::exception_ptr failure_;
  std::vector<std::thread> helpers_;
};

// While it lives, parallel_for() on this thread computes with the pool's threads.
class UseThreads {
 public:
  explicit UseThreads(ThreadPool& pool);
  ~UseThreads();
  UseThreads(const UseThreads&) = delete;
  UseThreads& operator=(const UseThreads&) = delete;

 private:
  ThreadPool* before_;
};

// body(part) for each part in [0, parts), in any order, on the threads of the calling thread's
// pool; in order without one. Within a part there is no pool: calls inside of it are serial.
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

// body(first, count) for ranges of up to `grain` that make up [0, size).
template <typename Body>
void parallel_ranges(int64_t size, int64_t grain, Body&& body) {
  parallel_for((size + grain - 1) / grain, [&](int64_t part) {
    const int64_t first = part * grain;
    body(first, std::min(grain, size - first));
  });
}

// The same for the rows of a matrix with `cols` columns, in ranges of some 16 Ki elements.
template <typename Body>
void parallel_rows(int64_t rows, int64_t cols, Body&& body) {
  constexpr int64_t kElements = 1 << 14;
  parallel_ranges(rows, std::max<int64_t>(1, kElements / std::max<int64_t>(1, cols)), body);
}

// The threads that a part may be computed by: the size of what each of them needs for itself.
inline int threads_here() {
  const ThreadPool* const pool = ThreadPool::current();
  return pool == nullptr ? 1 : pool->threads();
}

}  // namespace tutti::training
