// Memory for activations and temporaries: filled from its start and emptied from its end.
//
//   |input|...saved by layer 0...|...saved by layer 1...|temporaries|              |
//                                                                    ^ mark()
//
// Nothing moves and nothing fragments: what a training step leaves behind is the same memory for
// the next one ("contiguous memory", Rajbhandari et al., ZeRO, 2020, section 6.3). It is a
// backend's memory, allocated chunk by chunk, as it is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "training/core/backend.h"
#include "training/core/tensor.h"

namespace tutti::training {

// The bytes of memory that this process may use: the machine's, or fewer where a container has
// fewer. `cgroups` is where the kernel tells of them.
size_t usable_memory(const std::string& cgroups = "/sys/fs/cgroup");

class Arena {
 public:
  // Holds `limit` bytes at most, and reserves none before they are asked for. A null backend: in
  // the host's memory.
  explicit Arena(size_t limit = usable_memory(), const Backend* backend = nullptr)
      : limit_(limit), backend_(backend) {}
  explicit Arena(const Backend* backend) : Arena(usable_memory(), backend) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // The values are unspecified; rows are contiguous; the start is aligned to a cache line. Throws
  // Error(invalid_argument) beyond the limit, Error(system) where addresses are refused.
  Tensor take(DType dtype, int64_t rows, int64_t cols);

  const Backend* backend() const { return backend_; }
  // The bytes in use.
  size_t mark() const { return used_; }
  // Everything that was taken since `mark` is given back.
  void release(size_t mark);

  // The most bytes that were in use at once.
  size_t high_water() const { return high_water_; }

 private:
  // Chunks are filled in order. What does not fit into the rest of one goes to the next.
  struct Chunk {
    BackendMemory memory;
    size_t size = 0;
    size_t used_before = 0;  // bytes in use in the chunks before, when this one was begun
  };

  void begin_chunk(size_t bytes);

  size_t limit_;
  const Backend* backend_;
  std::vector<Chunk> chunks_;
  size_t current_ = 0;   // the chunk that is being filled; there may be none yet
  size_t reserved_ = 0;  // bytes of all chunks
  size_t used_ = 0;
  size_t high_water_ = 0;
};

// Gives back at the end of a scope what was taken in it.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~ArenaScope() { arena_.release(mark_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  size_t mark_;
};

}  // namespace tutti::training
