// A GPU of host threads that runs the kernels of collectives/gpu without a real GPU. A block is an
// OS thread, and the block's threads are fibers. Fibers are switched at barriers and in every
// iteration of a wait, in a random order determined by the seed (reproducible on one core).
//
// ThreadSanitizer treats each fiber as a separate thread, so it reports races between the threads
// of a kernel. Tests with this GPU do not cover the atomicity of 16-byte stores, scopes, and other
// reordering by a GPU's memory.
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
  size_t parameter_bytes;  // size of its one parameter
};

// Blocks until all threads of the grid have ended.
void run(const Grid& grid, const NamedKernel& kernel, void** parameters);

}  // namespace tutti::host_gpu
