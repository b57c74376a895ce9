// Kills the ranks' process groups if this process dies before it can do so itself (kill -9).
//
// PR_SET_PDEATHSIG reaches the ranks, but not the processes that they started (a Python under a
// shell script). The guard is a shell of six lines that holds a socket from this process. The
// socket closes when this process dies.
#pragma once

#include <sys/types.h>

#include "base/fd.h"

namespace tutti::tool {

class Guard {
 public:
  Guard();
  // Ends the guard without killing ranks; returns when it has exited.
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // Adds a process group to those that the guard kills. Async-signal-safe; a forked child may call
  // it for itself.
  void protect(pid_t process_group) const;

 private:
  Fd socket_;
};

}  // namespace tutti::tool
