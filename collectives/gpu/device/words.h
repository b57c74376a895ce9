// What kernels load and store at a time.
#pragma once

#include <cstdint>

namespace tutti::gpu {

// 16 bytes of data: the widest load or store that a thread can make.
struct alignas(16) Vector {
  uint32_t words[4] = {};
};

// 8 bytes of data, each half with a flag: a reader that finds both flags as it expects them has the
// data, too, without a fence, as a half is stored as a whole.
struct alignas(16) Line {
  uint32_t data0 = 0;
  uint32_t flag0 = 0;
  uint32_t data1 = 0;
  uint32_t flag1 = 0;
};

}  // namespace tutti::gpu
