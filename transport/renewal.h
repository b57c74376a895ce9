// Counts the connections on one lane between two ranks. Each connection after the first replaces
// the one before it, which has broken.
#pragma once

namespace tutti {

struct Renewal {
  static constexpr int kMost = 0xffff;
  int number = 0;   // index of the connection; 0: the first
  int detours = 0;  // number of common rails to skip, because they went silent
};

}  // namespace tutti
