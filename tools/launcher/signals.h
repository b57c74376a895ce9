// Turns signals into events for one thread's event loop.
#pragma once

#include <csignal>
#include <vector>

#include "base/fd.h"

namespace tutti::tool {

class SignalInbox {
 public:
  // Blocks the signals in the calling thread and collects them. Signals that the process was
  // started to ignore (nohup, a shell's background job) stay ignored, except SIGPIPE.
  explicit SignalInbox(const std::vector<int>& numbers);
  // Discards pending signals and restores the thread's mask.
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  // Returns a descriptor that is readable while a signal is pending.
  int fd() const { return fd_.get(); }
  // Returns all pending signals; never blocks.
  std::vector<int> take();

 private:
  sigset_t before_;
  Fd fd_;
};

}  // namespace tutti::tool
