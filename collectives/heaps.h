// The memory of this rank that others may read in place, and theirs, once per job and process:
// communicators share it.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "transport/bootstrap/control.h"
#include "transport/shm/heap.h"

namespace tutti::internal {

class HeapTable {
 public:
  explicit HeapTable(Control& control) : control_(control) {}
  HeapTable(const HeapTable&) = delete;
  HeapTable& operator=(const HeapTable&) = delete;
  ~HeapTable();

  // Any thread. Null as long as nothing was allocated or registered.
  const shm::Heap* own() const { return own_.load(std::memory_order_acquire); }
  // Null, and a line in the log, where there can be none.
  std::shared_ptr<shm::Heap> make_own();
  // Asks the rank for it the first time. Throws Error(system) when it cannot be had: what was lent
  // there cannot be read in any other way.
  const shm::PeerHeap& of(int world_rank);

 private:
  Control& control_;
  std::mutex mutex_;
  std::shared_ptr<shm::Heap> kept_;
  bool impossible_ = false;
  std::atomic<const shm::Heap*> own_{nullptr};
  std::map<int, std::unique_ptr<shm::PeerHeap>> peers_;
};

}  // namespace tutti::internal
