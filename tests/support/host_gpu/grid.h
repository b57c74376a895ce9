// A GPU of host threads: runs the kernels of collectives/gpu where there is no other. A block is an
// OS thread, and its threads are fibers, which are switched at barriers and in every turn of a
// wait, in a random order that the seed decides (on one core it can be had again).
//
// ThreadSanitizer takes each fiber for a thread of its own, so it reports what two threads of a
// kernel do to each other without order. What cannot be shown here: whether a 16-byte store is one
// store, scopes, and what a GPU's memory reorders beyond that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tests/support/host_gpu/thread.h"

namespace tutti::host_gpu {

struct Grid {
  unsigned blocks = 1;
  unsigned threads = 32;
  uint64_t seed = 1;
  size_t shared_bytes = 0;
};

struct NamedKernel {
  const char* name;
  void (*run)(Thread& thread, void** parameters);
  size_t parameter_bytes;  // of its one parameter
};

// Returns when all threads of the grid have ended.
void run(const Grid& grid, const NamedKernel& kernel, void** parameters);

}  // namespace tutti::host_gpu
