// Which of many connections something has come on: one system call asks for all of them, instead of
// one each that tries to receive.
#pragma once

#include <cstdint>

#include "base/fd.h"

namespace tutti {

class Speakers {
 public:
  // What is known of one connection; it must not move while it is watched.
  struct Speaker {
    bool watched = false;
    bool silent = false;  // set by whoever has received all that was there
    uint32_t round = 0;   // when it was asked for last
  };

  // From now on; without an effect for want of descriptors.
  void watch(int socket, Speaker& speaker);
  // One that has ended would count as speaking for ever.
  void forget(int socket, Speaker& speaker);
  // True while nothing has come since it fell silent. All are asked when one is asked for the
  // second time since they were last.
  bool is_silent(Speaker& speaker);

 private:
  void ask();

  Fd epoll_;
  uint32_t round_ = 0;
};

}  // namespace tutti
