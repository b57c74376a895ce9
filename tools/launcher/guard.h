// Kills the ranks' process groups should this process die before it could do so itself (kill -9).
//
// PR_SET_PDEATHSIG reaches the ranks, but not what they started (a Python under a shell script).
// The guard is a small forked process that holds a pipe from this one; when the pipe breaks, this
// process is gone.
#pragma once

#include <sys/types.h>

#include "base/fd.h"

namespace tutti::tool {

class Guard {
 public:
  Guard();
  // Sends the guard away, killing nobody; returns when it is gone.
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  void protect(pid_t process_group);

 private:
  Fd socket_;
};

}  // namespace tutti::tool
