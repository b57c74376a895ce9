// The regions of all communicators but the first: they lie in the file of that one's region, which
// every rank of the host has got, so that nobody need ask for a descriptor.
//
//   a rank's part of the file    [ directory | heap: segments and regions ]
//                                  id, offset
//                                  id, offset
//
// The owner of a region takes room for it out of its heap, and says in its directory where. The
// others look there until they find it. The room is used again when all of them have let go of it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "base/fd.h"
#include "transport/shm/extents.h"
#include "transport/shm/heap.h"
#include "transport/shm/region.h"

namespace tutti::shm {

// Of the file behind a rank's part's start. The heap has the rest.
inline constexpr uint64_t kDirectoryBytes = uint64_t{2} << 20;

class RegionTable {
 public:
  // `parts`: of the file, by rank; `heap` is in that of rank `own`.
  RegionTable(std::shared_ptr<const Fd> file, std::map<int, Extent> parts, int own,
              std::shared_ptr<Heap> heap);
  RegionTable(const RegionTable&) = delete;
  RegionTable& operator=(const RegionTable&) = delete;
  ~RegionTable();

  // Any thread, all of these.
  // By the owner, who then withdraws `id` when all have attached, and gives the region back when it
  // has detached from it. All zero. Throws Error(system) where there is no room.
  std::shared_ptr<Region> create(uint64_t id, const Geometry& geometry);
  void withdraw(uint64_t id);
  void give_back(uint64_t id);
  // By the others. Null: not there yet.
  std::shared_ptr<Region> find(uint64_t id, int owner, const Geometry& geometry);

 private:
  struct Directory;
  struct Own {  // a region of this rank's making
    std::shared_ptr<Region> region;
    Extent extent;
    uint32_t ranks = 0;
    bool given_back = false;
  };
  Directory* directory_of(int rank);
  void reuse();

  const std::shared_ptr<const Fd> file_;
  const std::map<int, Extent> parts_;
  const int own_;
  const std::shared_ptr<Heap> heap_;
  const int64_t process_;
  std::mutex mutex_;
  std::map<int, Directory*> directories_;  // mapped ones, by rank
  std::map<uint64_t, Own> regions_;        // by id
};

}  // namespace tutti::shm
