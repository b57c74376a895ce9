// Extents of a file, and a free list of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace tutti::shm {

struct Extent {
  uint64_t offset = 0;
  uint64_t bytes = 0;

  uint64_t end() const { return offset + bytes; }
  bool contains(const Extent& other) const {
    return offset <= other.offset && other.end() <= end();
  }
  bool overlaps(const Extent& other) const { return offset < other.end() && other.offset < end(); }
  bool operator==(const Extent&) const = default;
};

class FreeExtents {
 public:
  explicit FreeExtents(const Extent& all) : all_(all), free_{{all.offset, all.bytes}} {}

  // Takes the beginning of the first free extent that has `bytes` bytes, and returns it; nullopt if
  // there is none.
  std::optional<Extent> take(uint64_t bytes);
  void give_back(const Extent& extent);
  const Extent& all() const { return all_; }
  // Returns true if nothing is taken.
  bool whole() const { return free_.size() == 1 && free_.begin()->second == all_.bytes; }

 private:
  Extent all_;
  std::map<uint64_t, uint64_t> free_;  // length by offset
};

}  // namespace tutti::shm
