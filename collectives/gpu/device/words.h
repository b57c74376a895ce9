// Units that kernels load and store.
#pragma once

#include <cstdint>

namespace tutti::gpu {

// 16 bytes of data: the widest load or store of a thread.
struct alignas(16) Vector {
  uint32_t words[4] = {};
};

// 8 bytes of data, each half with a flag. Each half is stored atomically, so a reader that finds
// both flags as expected has the data without a fence.
struct alignas(16) Line {
  uint32_t data0 = 0;
  uint32_t flag0 = 0;
  uint32_t data1 = 0;
  uint32_t flag1 = 0;
};

}  // namespace tutti::gpu
