// Which of the connections on one lane from one rank to another: each takes the place of the one
// before it, which has broken.
#pragma once

namespace tutti {

struct Renewal {
  static constexpr int kMost = 0xffff;
  int number = 0;   // 0: the first
  int detours = 0;  // how many of the two ranks' rails to pass over: on these it went silent
};

}  // namespace tutti
