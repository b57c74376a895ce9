#include "collectives/heaps.h"

#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace tutti::internal {

namespace {

std::string heap_name(int world_rank) { return cat("heap of ", world_rank); }

}  // namespace

HeapTable::~HeapTable() {
  if (kept_) control_.withdraw(heap_name(control_.rank()));
}

std::shared_ptr<shm::Heap> HeapTable::make_own() {
  const std::lock_guard lock(mutex_);
  if (kept_ || impossible_) return kept_;
  try {
    auto heap = std::make_shared<shm::Heap>();
    control_.offer(heap_name(control_.rank()), heap->fd());
    kept_ = std::move(heap);
    own_.store(kept_.get(), std::memory_order_release);
  } catch (const Error& error) {
    impossible_ = true;
    log(LogLevel::warning, cat("buffers are not shared, but copied: ", error.what()));
  }
  return kept_;
}

const shm::PeerHeap& HeapTable::of(int world_rank) {
  constexpr std::chrono::seconds kTimeout(10);
  const std::lock_guard lock(mutex_);
  std::unique_ptr<shm::PeerHeap>& heap = peers_[world_rank];
  if (heap != nullptr) return *heap;
  try {
    const Fd memory = control_.fetch(world_rank, heap_name(world_rank), Deadline::after(kTimeout));
    heap = std::make_unique<shm::PeerHeap>(memory);
  } catch (const Error& error) {
    throw Error(ErrorCode::system,
                cat(control_.describe(control_.rank()), " cannot read the buffers of ",
                    control_.describe(world_rank), ": ", error.what()));
  }
  return *heap;
}

}  // namespace tutti::internal
