// The heaps of this host's ranks that can be read in place, and the regions of communicators. All
// communicators of a job in this process share the table.
#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "base/fd.h"
#include "transport/shm/heap.h"
#include "transport/shm/peer_memory.h"
#include "transport/shm/region_table.h"

namespace tutti::shm {

class HeapTable {
 public:
  // Called once, for the first communicator: each of this host's `ranks`, in ascending order and
  // `own` included, gets its part of the file behind `start`.
  void join(const Fd& file, uint64_t start, std::span<const int> ranks, int own);
  bool joined() const { return others_ != nullptr; }

  const Heap* own() const { return own_.get(); }
  PeerMemory* others() const { return others_.get(); }
  // Returns the heap for allocation and registration; null, with one log line, if this host cannot
  // have one.
  std::shared_ptr<Heap> share() const;
  // Returns the table of regions. If this host has no room for it, returns null on all its ranks.
  RegionTable* regions() const { return regions_.get(); }

 private:
  std::shared_ptr<Heap> own_;
  std::unique_ptr<PeerMemory> others_;
  std::unique_ptr<RegionTable> regions_;
  mutable std::atomic<bool> told_{false};
};

}  // namespace tutti::shm
