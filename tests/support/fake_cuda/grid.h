// A GPU of host threads: its threads of a block run one after the other, its blocks too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::host_gpu {

struct Grid {
  unsigned blocks = 1;
  unsigned threads = 32;
  uint64_t seed = 1;
  size_t shared_bytes = 0;
};

class Thread {
 public:
  Thread(const Grid& grid, unsigned block, unsigned index)
      : grid_(grid), block_(block), index_(index) {}
  unsigned index() const { return index_; }
  unsigned threads() const { return grid_.threads; }
  unsigned block() const { return block_; }
  unsigned blocks() const { return grid_.blocks; }

 private:
  const Grid& grid_;
  unsigned block_;
  unsigned index_;
};

struct NamedKernel {
  const char* name;
  void (*run)(Thread& thread, void** parameters);
  size_t parameter_bytes;  // of its one parameter
};

// Returns when all threads of the grid have ended.
inline void run(const Grid& grid, const NamedKernel& kernel, void** parameters) {
  for (unsigned block = 0; block < grid.blocks; ++block) {
    for (unsigned index = 0; index < grid.threads; ++index) {
      Thread thread(grid, block, index);
      kernel.run(thread, parameters);
    }
  }
}

}  // namespace tutti::host_gpu
