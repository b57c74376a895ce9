#include "collectives/one_sided/own_part.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/copy_bytes.h"
#include "base/reduce.h"

namespace tutti::one_sided {

void combine(std::byte* dst, const void* from, uint64_t bytes, DType dtype, ReduceOp op) {
  static_assert(std::ranges::all_of(kAllDTypes,
                                    [](DType type) { return std::has_single_bit(size_of(type)); }));
  const uint64_t count =
      bytes >> std::countr_zero(size_of(dtype));  // a shift is faster than a division
  reduce_kernel(dtype, op)(dst, dst, from, count, {});
}

uint64_t swap(std::byte* at, uint64_t bytes, uint64_t expected, uint64_t desired) {
  uint64_t found = 0;
  std::memcpy(&found, at, bytes);
  if (std::memcmp(&found, &expected, bytes) == 0) std::memcpy(at, &desired, bytes);
  return found;
}

class OwnPart::Locked {
 public:
  explicit Locked(OwnPart& part) : part_(part), lock_(part.mutex_) {
    if (part_.shared_) part_.shared_.lock(part_.check_);
  }
  ~Locked() {
    if (part_.shared_) part_.shared_.unlock();
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  OwnPart& part_;
  const std::scoped_lock<std::mutex> lock_;
};

OwnPart::OwnPart(std::span<std::byte> memory, SharedPart shared,
                 std::function<bool(int holder)> check)
    : memory_(memory), shared_(std::move(shared)), check_(std::move(check)) {}

// Writes to the part. The lock excludes only other threads of this process, because put() and get()
// need not be atomic between processes.
void OwnPart::write(uint64_t offset, const void* from, uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  copy_bytes(memory_.data() + offset, from, bytes);
}

void OwnPart::read(uint64_t offset, void* into, uint64_t bytes) const {
  const std::scoped_lock lock(mutex_);
  copy_bytes(into, memory_.data() + offset, bytes);
}

void OwnPart::combine(uint64_t offset, const void* from, uint64_t bytes, DType dtype, ReduceOp op) {
  const Locked lock(*this);
  one_sided::combine(memory_.data() + offset, from, bytes, dtype, op);
}

uint64_t OwnPart::swap(uint64_t offset, uint64_t bytes, uint64_t expected, uint64_t desired) {
  const Locked lock(*this);
  return one_sided::swap(memory_.data() + offset, bytes, expected, desired);
}

std::array<std::atomic<uint64_t>, kSignals>& OwnPart::signals() {
  return shared_ ? shared_.control().signals : own_signals_;
}

void OwnPart::add_signal(uint64_t slot, uint64_t count) {
  signals().at(slot).fetch_add(count, std::memory_order_release);
}

bool OwnPart::take_signal(uint64_t slot, uint64_t count) {
  std::atomic<uint64_t>& signal = signals().at(slot);
  uint64_t there = signal.load(std::memory_order_acquire);
  while (there >= count) {
    if (signal.compare_exchange_weak(there, there - count, std::memory_order_acquire)) return true;
  }
  return false;
}

void OwnPart::begin_sleep() {
  if (shared_) shared_.control().sleepers.fetch_add(1, std::memory_order_seq_cst);
}
void OwnPart::end_sleep() {
  if (shared_) shared_.control().sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace tutti::one_sided
