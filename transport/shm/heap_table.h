// The memory of this rank that others of its host may read in place, and theirs, and the regions of
// communicators, once per job and process: communicators share it.
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
  // Once, with the first communicator: of the file behind `start` each of the `ranks` of this host
  // has its part, `own` among them.
  void join(const Fd& file, uint64_t start, std::span<const int> ranks, int own);
  bool joined() const { return others_ != nullptr; }

  const Heap* own() const { return own_.get(); }
  PeerMemory* others() const { return others_.get(); }
  // To allocate and to register in. Null, and once a line in the log, where there can be none.
  std::shared_ptr<Heap> share() const;
  // Null where there can be none, on all ranks of the host alike.
  RegionTable* regions() const { return regions_.get(); }

 private:
  std::shared_ptr<Heap> own_;
  std::unique_ptr<PeerMemory> others_;
  std::unique_ptr<RegionTable> regions_;
  mutable std::atomic<bool> told_{false};
};

}  // namespace tutti::shm
