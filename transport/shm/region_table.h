// The regions of all communicators except the first. They are in the file of the first region,
// which every rank of the host has mapped, so that no descriptor needs to be passed.
//
//   a rank's part of the file    [ directory | heap: segments and regions ]
//                                  id, offset
//                                  id, offset
//
// The owner of a region allocates it in its heap, and publishes the location in its directory. The
// other ranks poll the directory. The region's room is reused when all of them have detached.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fd.h"
#include "transport/shm/extents.h"
#include "transport/shm/heap.h"
#include "transport/shm/region.h"

namespace tutti::shm {

// Size in bytes of the directory, at the start of a rank's part of the file. The heap has the rest.
inline constexpr uint64_t kDirectoryBytes = uint64_t{2} << 20;

class RegionTable {
 public:
  // `ranks`, in ascending order, have consecutive parts of equal size; `first` is the part of the
  // first rank. `heap` is in the part of rank `own`.
  RegionTable(std::shared_ptr<const Fd> file, std::vector<int> ranks, const Extent& first, int own,
              std::shared_ptr<Heap> heap);
  RegionTable(const RegionTable&) = delete;
  RegionTable& operator=(const RegionTable&) = delete;
  ~RegionTable();

  // Creates a zeroed region. Its owner calls withdraw() when all ranks have attached, and
  // give_back() after detaching from the region. Throws Error(system) if there is no room. All
  // calls of this class are thread-safe.
  std::shared_ptr<Region> create(uint64_t id, const Geometry& geometry);
  void withdraw(uint64_t id);
  void give_back(uint64_t id);
  // Maps and returns the region that another rank, `owner`, created; null if it is not published
  // yet.
  std::shared_ptr<Region> find(uint64_t id, int owner, const Geometry& geometry);

 private:
  struct Directory;
  struct Own {  // a region that this rank created
    std::shared_ptr<Region> region;
    Extent extent;
    uint32_t ranks = 0;
    bool given_back = false;
  };
  Directory* directory_of(int rank);
  void reuse();

  const std::shared_ptr<const Fd> file_;
  const std::vector<int> ranks_;
  const Extent first_;
  const int own_;
  const std::shared_ptr<Heap> heap_;
  const int64_t process_;
  std::mutex mutex_;
  std::map<int, Directory*> directories_;  // mapped directories, by rank
  std::map<uint64_t, Own> regions_;        // regions that this rank created, by id
};

}  // namespace tutti::shm
