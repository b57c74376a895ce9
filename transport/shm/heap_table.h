// The memory of this rank that others of its host may read in place, and theirs, once per job and
// process: communicators share it.
#pragma once

#include <atomic>
#include <memory>

#include "base/fd.h"
#include "transport/shm/heap.h"
#include "transport/shm/peer_memory.h"

namespace tutti::shm {

class HeapTable {
 public:
  // Once, with the first communicator: of the file behind `start` this rank, the `rank`-th of
  // `ranks` on this host, has its part.
  void join(const Fd& file, uint64_t start, int ranks, int rank);
  bool joined() const { return others_ != nullptr; }

  const Heap* own() const { return own_.get(); }
  PeerMemory* others() const { return others_.get(); }
  // To allocate and to register in. Null, and once a line in the log, where there can be none.
  std::shared_ptr<Heap> share() const;

 private:
  std::shared_ptr<Heap> own_;
  std::unique_ptr<PeerMemory> others_;
  mutable std::atomic<bool> told_{false};
};

}  // namespace tutti::shm
