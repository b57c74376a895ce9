// One block of an emulated grid: its fibers and their scheduler.
#pragma once

#include <atomic>
#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/support/host_gpu/grid.h"

namespace tutti::host_gpu {

class FiberBlock {
 public:
  FiberBlock(const Grid& grid, unsigned number, const NamedKernel& kernel, void** parameters);
  ~FiberBlock();
  FiberBlock(const FiberBlock&) = delete;
  FiberBlock& operator=(const FiberBlock&) = delete;

  void run();  // returns when all threads have ended

  const Grid& grid() const { return grid_; }
  unsigned number() const { return number_; }
  std::byte* shared() { return reinterpret_cast<std::byte*>(shared_.data()); }
  // Fiber `index` of the block calls these functions to yield.
  void barrier(unsigned index);
  void pause(unsigned index) { leave(fibers_[index], Reason::pause); }

 private:
  // Reason why a fiber yields.
  enum class Reason : int { pause, barrier, end };

  struct Fiber {
    Thread thread;
    FiberBlock* block = nullptr;
    std::unique_ptr<std::byte[]> stack;
    // resume point, which the scheduler accesses
    boost::context::detail::fcontext_t context = nullptr;
    boost::context::detail::fcontext_t scheduler =
        nullptr;                // resume point of the scheduler, which the fiber accesses
    void* sanitizer = nullptr;  // handle of ThreadSanitizer
    bool at_barrier = false;
    bool started = false;
  };

  void prepare(Fiber& fiber);
  static void body(boost::context::detail::transfer_t from);
  void resume(Fiber& fiber);
  void take_from(size_t place);
  void open_barrier();
  void leave(Fiber& fiber, Reason reason);
  uint64_t random();

  const Grid grid_;
  const unsigned number_;
  const NamedKernel& kernel_;
  void** const parameters_;
  std::vector<uint64_t> shared_;
  std::vector<Fiber> fibers_;
  // Used only by the scheduler, because the sanitizer treats fibers as unsynchronized threads:
  uint64_t random_state_;
  std::vector<size_t> runnable_;
  size_t ended_ = 0;
  size_t waiting_ = 0;  // number of fibers at the barrier
  uint64_t pauses_ = 0;
  void* scheduler_sanitizer_ = nullptr;
  // Set by the running fiber:
  std::atomic<Reason> reason_{Reason::pause};
  // Orders accesses before a barrier before those after it, for the sanitizer.
  std::atomic<uint64_t> order_{0};
};

}  // namespace tutti::host_gpu
