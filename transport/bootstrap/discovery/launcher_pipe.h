// The pipe on which the launcher reports to every surviving rank how the others ended:
//
//     exit RANK PID CODE
//     signal RANK PID NUMBER[ WHY]
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/error.h"
#include "transport/bootstrap/handshake/poll_set.h"

namespace tutti::bootstrap {

struct RankEnd {
  int rank = 0;
  int64_t pid = 0;
  bool by_signal = false;
  int value = 0;    // exit code or signal number
  std::string why;  // further details: "by the kernel's out-of-memory killer"

  // Returns true if the process ended itself: it exited, or raised SIGABRT, possibly because
  // another rank had failed.
  bool by_itself() const;

  // Formats as "was killed by signal 9 (Killed)", "ended with exit code 1 without leaving the job".
  std::string text() const;
};

// Builds Error(rank_died) for a rank that ended before all ranks had connected.
Error death_while_joining(const RankEnd& end);

class LauncherPipe {
 public:
  // Borrows the descriptor; -1 means that there is no launcher.
  explicit LauncherPipe(int fd = -1) : fd_(fd) {}

  bool open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  void watch(PollSet& set, const std::function<void(const RankEnd&)>& on_end);
  // Reads once, and calls `on_end` for each end that was reported. Call it when the pipe is
  // readable.
  void read(const std::function<void(const RankEnd&)>& on_end);

 private:
  int fd_ = -1;
  std::string incoming_;
};

}  // namespace tutti::bootstrap
