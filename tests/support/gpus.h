// Places for a test's ranks on GPUs: the emulated ones, or as many as the machine has.
#pragma once

#include <cstddef>

#include "base/cuda/device.h"
#include "base/cuda/memory.h"
#include "base/cuda/stream.h"

namespace tutti::testing {

// The GPU of rank `rank`. Ranks share GPUs where the machine has fewer (tools/gpu_check).
inline int gpu_of(int rank) { return rank % cuda::device_count(); }

// True where `ranks` threads share GPUs, and with them contexts: then no rank may allocate, or load
// anything, while another one's kernel waits for it, since the driver may wait for that kernel.
inline bool share_gpus(int ranks) { return ranks > cuda::device_count(); }

// Copies between a GPU's memory and pageable memory of the host, once all that is in the stream has
// ended, and returns when the copy has. A driver copies pageable memory under a lock of the
// context: a copy that waited for a kernel would keep ranks that share the GPU from launching
// theirs.
inline void copy_and_wait(void* to, const void* from, size_t bytes, cuda::CUstream stream) {
  cuda::synchronize(stream);
  cuda::copy_async(to, from, bytes, stream);
  cuda::synchronize(stream);
}

}  // namespace tutti::testing
