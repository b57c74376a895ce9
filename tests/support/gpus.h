// Assigns GPUs to a test's ranks: emulated GPUs, or the real GPUs of the machine.
#pragma once

#include <cstddef>

#include "base/cuda/device.h"
#include "base/cuda/memory.h"
#include "base/cuda/stream.h"

namespace tutti::testing {

// Returns rank `rank`'s GPU. Ranks share GPUs if the machine has fewer (tools/gpu_check).
inline int gpu_of(int rank) { return rank % cuda::device_count(); }

// Returns true if `ranks` threads share GPUs and therefore contexts. Then no rank may allocate or
// load anything while the kernel of another rank waits for it, because the driver may wait for that
// kernel.
inline bool share_gpus(int ranks) { return ranks > cuda::device_count(); }

// Copies between GPU memory and pageable host memory after all work in the stream has ended; blocks
// until the copy has completed. A driver copies pageable memory under a lock of the context, so a
// copy that waited for a kernel would prevent ranks that share the GPU from launching theirs.
inline void copy_and_wait(void* to, const void* from, size_t bytes, cuda::CUstream stream) {
  cuda::synchronize(stream);
  cuda::copy_async(to, from, bytes, stream);
  cuda::synchronize(stream);
}

}  // namespace tutti::testing
