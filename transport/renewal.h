// The number of a connection on one lane between two ranks. Each connection replaces the one before
// it, which has broken.
#pragma once

namespace tutti {

struct Renewal {
  static constexpr int kMost = 0xffff;
  int number = 0;   // 0: the first connection
  int detours = 0;  // number of common rails to skip, because they went silent
};

}  // namespace tutti
