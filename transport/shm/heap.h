// Memory of one rank that the other ranks of its host can read in place.
//
// The ranks of a host share one sparse file in memory, of which each has a part to hand pages out
// of: segments. What is not handed out takes neither memory nor addresses.
//
//   the file     [ region | rank 0's part ................ | rank 1's part ....... | ... ]
//                           [segment][segment]     [seg]
//                  (a part begins with the directory of region_table.h)
//
//   its owner    a segment of allocate() is mapped when there is no room in those before, and holds
//                several pieces of memory; one of adopt() is put where the caller's pages were:
//                addresses and contents stay
//
//   a reader     maps a segment, to read only, when it meets the first message that lies there
//
// A segment goes when nothing in it is in use. A reader's mapping may outlive it: there are zeros
// then, or what has been put there since, and nobody believes it (ShmTransport::revoke).
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

// How many bytes for the heaps of `ranks` ranks a file can have from `start` on: 0 where that is
// not worth while, under a limit on the sizes of files.
uint64_t bytes_for_heaps(uint64_t start, int ranks);
// Each one's part of the file behind `start`. Empty where there is none.
Extent part_of_heaps(const Fd& file, uint64_t start, int ranks, int rank);

// What the others must know to read a piece of memory.
struct Place {
  uint64_t offset = 0;  // in the file
  Extent segment;       // what to map
  bool adopted = false;
};

class Heap {
 public:
  // What is handed out, as one thread has last seen it, so that looking for something takes no
  // lock.
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

  // Any thread, all of these.
  // Zeroed, starts at a page. Null when there are no addresses for it, or the part is full.
  std::byte* allocate(size_t bytes);
  void free(std::byte* data);
  // Moves the whole pages of this range into the heap: what is in them, and where they are, stays.
  // Nobody may use them meanwhile. Returns a number for release(), 0 where there is no whole page.
  // Throws Error(invalid_argument) where they are not plain private memory (as what was adopted is
  // not), Error(system) where there is no room; then nothing has changed.
  //
  // In a child of fork() the pages are its own as soon as it writes to them: until then they show
  // what the parent writes.
  uint64_t adopt(std::span<std::byte> range);
  // Moves them back, but for those that their owner has unmapped meanwhile. Throws Error(system)
  // where there is no room: the rest stays as it is, and can be used.
  void release(uint64_t number);
  // True if no page of memory at an adopted place has become private memory since: others may then
  // read it in the file. (Another file, or other shared memory, that was mapped there is not found
  // out.)
  bool still_adopted(std::span<const std::byte> data) const { return pages_.is_shared(data); }

  // Room in the file for others to map and write, all zero; nothing where the part is full.
  std::optional<Extent> take_room(uint64_t bytes);
  void give_room_back(const Extent& room);

  // Nothing unless all of it is in one segment. Of each `view` one thread at a time.
  std::optional<Place> find(const std::byte* data, size_t bytes, View& view) const;

 private:
  struct Segment {
    std::byte* base = nullptr;
    FreeExtents free;
    std::byte* at(uint64_t offset) const { return base + (offset - free.all().offset); }
  };
  struct Piece {
    uint64_t segment = 0;  // its offset
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

  // Called by fork(), in the parent before and after it, and in the child.
  friend class HeapsAtFork;
  void before_fork();
  void after_fork();
  void in_child();
  void changed() { version_.fetch_add(1, std::memory_order_release); }

  const std::shared_ptr<const Fd> file_;
  const int64_t owner_;  // the process that made it
  mutable std::mutex mutex_;
  FreeExtents free_;                      // of the part
  std::map<uint64_t, Segment> segments_;  // of allocate(), by offset
  uint64_t mapped_ = 0;                   // bytes of these
  std::map<const std::byte*, Piece> allocated_;
  struct Adopted {
    std::span<std::byte> pages;
    uint64_t offset = 0;  // in the file, of the first page
    bool unmapped = false;
  };
  std::map<uint64_t, Adopted> adopted_;  // by number
  uint64_t adoptions_ = 0;
  std::atomic<uint64_t> version_{0};  // of what a View shows
  const PageTable pages_;
  std::vector<Adopted> of_child_;  // between before_fork() and the next two
};

}  // namespace tutti::shm
