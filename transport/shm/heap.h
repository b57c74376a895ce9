// Memory of one rank that the other ranks of its host can read in place.
//
// The ranks of a host share one sparse file in memory. Each rank owns a part of it, from which it
// allocates segments of pages. Unallocated pages use neither memory nor addresses.
//
//   the file     [ region | rank 0's part ................ | rank 1's part ....... | ... ]
//                           [segment][segment]     [seg]
//                  (a part begins with the directory of region_table.h)
//
//   its owner    allocate() maps a new segment if earlier ones have no room. A segment holds
//                several allocations. adopt() makes a segment of the caller's pages, which keep
//                their addresses and contents
//
//   a reader     maps a segment read-only when the first message in it arrives
//
// A segment is freed when nothing in it is in use. A reader's mapping may outlive the segment, and
// then shows zeros or later contents; readers discard such data (epoch check,
// ShmTransport::revoke).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/fd.h"
#include "transport/shm/extents.h"
#include "transport/shm/mappings.h"

namespace tutti::shm {

// Returns the number of bytes to add to the file after offset `start` for the heaps of all ranks; 0
// if the limit of file sizes (RLIMIT_FSIZE) leaves no room for them.
uint64_t bytes_for_heaps(uint64_t start, int ranks);
// Returns the extent of a rank's heap; the heaps follow offset `start` of the file. It is empty if
// the file has no room for heaps.
Extent part_of_heaps(const Fd& file, uint64_t start, int ranks, int rank);

// The location of an allocation, as other ranks need it to read.
struct Place {
  uint64_t offset = 0;  // offset in the file
  Extent segment;       // the segment to map
  bool adopted = false;
};

class Heap {
 public:
  // A thread's snapshot of the allocations, with which find() takes no lock.
  class View {
    friend class Heap;
    struct Entry {
      const std::byte* data = nullptr;
      Extent segment;
      bool adopted = false;
    };
    uint64_t version = 0;
    std::vector<Entry> entries;  // by address
  };

  Heap(std::shared_ptr<const Fd> file, const Extent& part);
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  ~Heap();

  // Returns zeroed, page-aligned memory; null if the address space or the part is full, and in a
  // forked child. All calls of this class are thread-safe.
  std::byte* allocate(size_t bytes);
  void free(std::byte* data);
  // Moves the whole pages of this range into the heap, keeping contents and addresses. No thread
  // may use the pages during the call. Returns an ID for release(); 0 if there is no whole page.
  // Throws Error(invalid_argument) if the pages are not plain private memory (adopted pages are not
  // plain), Error(unsupported) in a forked child, and Error(system) if there is no room; then
  // nothing has changed.
  //
  // In a forked child a page becomes private at the child's first write to it; until then the child
  // sees the parent's writes.
  uint64_t adopt(std::span<std::byte> range);
  // Moves the pages back, except those that their owner has unmapped meanwhile. Throws
  // Error(system) if there is no room: the remaining pages stay in the file, and stay usable, until
  // another call for the same ID succeeds.
  void release(uint64_t number);
  // Returns true if no page of an adopted range has been replaced by private memory: only then may
  // others read it in the file. (Another file, or other shared memory, mapped there is not
  // detected.)
  bool still_adopted(std::span<const std::byte> data) const { return pages_.is_shared(data); }

  // Takes zeroed room in the file, for others to map and write. Returns nullopt if the part is
  // full, and in a forked child.
  std::optional<Extent> take_room(uint64_t bytes);
  void release_room(const Extent& room);

  // Returns the location of an allocation; nullopt unless one segment contains the whole range.
  // Each `view` belongs to one thread at a time.
  std::optional<Place> find(const std::byte* data, size_t bytes, View& view) const;

 private:
  struct Segment {
    std::byte* base = nullptr;
    FreeExtents free;
    std::byte* at(uint64_t offset) const { return base + (offset - free.all().offset); }
  };
  struct Piece {
    uint64_t segment = 0;  // offset of the segment that contains the piece
    Extent extent;
  };
  Segment* add_segment(uint64_t bytes);
  bool mine() const;
  std::byte* map(const Extent& extent) const;
  void clear(const Extent& extent) const;
  void move_in(std::span<std::byte> pages, uint64_t offset) const;
  static void move_out(std::span<std::byte> pages);
  void forget_unmapped(std::span<const std::byte> pages);
  void refresh(View& view) const;

  // HeapsAtFork calls before_fork() in the parent before a fork(). After the fork() it calls
  // after_fork() in the parent, and in_child() and then after_fork() in the child.
  friend class HeapsAtFork;
  void before_fork();
  void after_fork();
  void in_child();
  void changed() { version_.fetch_add(1, std::memory_order_release); }

  const std::shared_ptr<const Fd> file_;
  const int64_t owner_;  // the process that created it
  mutable std::mutex mutex_;
  FreeExtents free_;                      // free parts of the file
  std::map<uint64_t, Segment> segments_;  // segments of allocate(), by offset
  uint64_t mapped_ = 0;                   // total bytes of segments_
  std::map<const std::byte*, Piece> allocated_;
  struct Adopted {
    std::span<std::byte> pages;
    uint64_t offset = 0;  // offset of the first page in the file
    bool unmapped = false;
  };
  std::map<uint64_t, Adopted> adopted_;  // adopted ranges, by the ID that adopt() returned
  uint64_t adoptions_ = 0;
  std::atomic<uint64_t> version_{0};  // changes when a View becomes outdated
  const PageTable pages_;
  std::vector<Adopted> of_child_;  // set by before_fork(), cleared after the fork
};

}  // namespace tutti::shm
