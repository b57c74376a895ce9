// This rank's part of a window, and the operations that requests perform on it. Locks serialise the
// operations.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>

#include "base/dtype.h"
#include "base/reduce_op.h"
#include "collectives/one_sided/shared_part.h"

namespace tutti::one_sided {

// Computes dst = dst op from. The caller holds the lock.
void combine(std::byte* dst, const void* from, uint64_t bytes, DType dtype, ReduceOp op);
// Writes `desired` if the value is `expected`, and returns the old value. The caller holds the
// lock.
uint64_t swap(std::byte* at, uint64_t bytes, uint64_t expected, uint64_t desired);

// This rank's part. Thread-safe.
class OwnPart {
 public:
  // Creates the part. `shared`: this rank's view of the part in shared memory, empty if the part is
  // not shared. `check`: passed to SharedPart::lock().
  OwnPart(std::span<std::byte> memory, SharedPart shared, std::function<bool(int holder)> check);

  std::span<std::byte> memory() const { return memory_; }
  const SharedPart& shared() const { return shared_; }

  void write(uint64_t offset, const void* from, uint64_t bytes);
  void read(uint64_t offset, void* into, uint64_t bytes) const;
  void combine(uint64_t offset, const void* from, uint64_t bytes, DType dtype, ReduceOp op);
  uint64_t swap(uint64_t offset, uint64_t bytes, uint64_t expected, uint64_t desired);
  void add_signal(uint64_t slot, uint64_t count);
  bool take_signal(uint64_t slot, uint64_t count);
  // Begin and end the sleep of a thread that waits for a signal. Ranks that signal between the two
  // calls also send a message, which wakes the thread.
  void begin_sleep();
  void end_sleep();

 private:
  // RAII lock that excludes all other combining operations on the memory, by threads of this
  // process and by ranks of the host.
  class Locked;
  std::array<std::atomic<uint64_t>, kSignals>& signals();

  const std::span<std::byte> memory_;
  const SharedPart shared_;
  const std::function<bool(int holder)> check_;
  std::array<std::atomic<uint64_t>, kSignals> own_signals_ = {};  // used if no signals are shared
  mutable std::mutex mutex_;
};

}  // namespace tutti::one_sided
