// Stack allocator for activations and temporaries: memory is taken from the end and released down
// to a mark.
//
//   |input|...saved by layer 0...|...saved by layer 1...|temporaries|              |
//                                                                    ^ mark()
//
// Tensors never move, and memory does not fragment: the next training step reuses the memory that
// this step released ("contiguous memory", Rajbhandari et al., ZeRO, 2020, section 6.3). On a host,
// the arena reserves one range of addresses, whose pages the system commits when they are first
// touched. A backend's memory is allocated in chunks as needed. So is the host's memory if the
// process has a limit on addresses or the system counts reservations as memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "training/core/backend.h"
#include "training/core/tensor.h"

namespace tutti::training {

// Returns the number of bytes that this process may use: the machine's memory, or the container's
// limit if that is lower.
size_t usable_memory();

class Arena {
 public:
  // Creates an arena of at most `limit` bytes, which allocates nothing before the first take(). A
  // null `backend` means the host's memory.
  explicit Arena(size_t limit = usable_memory(), const Backend* backend = nullptr)
      : limit_(limit), backend_(backend) {}
  explicit Arena(const Backend* backend) : Arena(usable_memory(), backend) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Returns a contiguous tensor with unspecified values, aligned to a cache line. Throws
  // Error(invalid_argument) beyond the limit, and Error(system) if the system refuses address
  // space.
  Tensor take(DType dtype, int64_t rows, int64_t cols);

  const Backend* backend() const { return backend_; }
  // Returns the number of bytes in use, which release() accepts.
  size_t mark() const { return used_; }
  // Releases everything that was taken since `mark`.
  void release(size_t mark);

  // Returns the largest number of bytes that were ever in use at once.
  size_t high_water() const { return high_water_; }

 private:
  // One allocation. Chunks are filled in order; a tensor that does not fit into the rest of a chunk
  // goes to the next chunk.
  struct Chunk {
    BackendMemory memory;
    size_t size = 0;
    // bytes in use in the earlier chunks when this chunk got its first tensor
    size_t used_before = 0;
  };

  void begin_chunk(size_t bytes);

  size_t limit_;
  const Backend* backend_;
  std::vector<Chunk> chunks_;
  size_t current_ = 0;   // index of the chunk that is being filled; chunks_ may be empty
  size_t reserved_ = 0;  // bytes of all chunks
  size_t used_ = 0;
  size_t high_water_ = 0;
};

// Releases the memory that was taken in a scope when the scope ends.
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
