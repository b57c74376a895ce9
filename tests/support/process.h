// A program under test as a child process. All waits have time limits; if one is exceeded, the test
// fails and the process is killed.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "base/fd.h"

namespace tutti::testing {

// Time limit that only a hang exceeds.
inline constexpr std::chrono::seconds kPatience{60};

struct Result {
  int code = 0;  // exit code as in a shell
  std::string out;
  std::string err;
};

class Process {
 public:
  using Environment = std::map<std::string, std::string>;

  // Starts the command in its own process group. `environment` is added to this process's
  // environment.
  explicit Process(std::vector<std::string> command, Environment environment = {});
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();  // kills the process unless finish() was called

  pid_t pid() const { return pid_; }
  // Reads standard output up to and including the `count`-th line in total; returns all lines so
  // far.
  std::vector<std::string> read_lines(size_t count);
  // Reads all output and waits for the end of the process. If `limit` passes before, the test
  // fails.
  Result finish(std::chrono::milliseconds limit = kPatience);

 private:
  void kill_group();

  std::string command_;
  pid_t pid_ = -1;
  Fd out_;
  Fd err_;
  std::string text_;
};

// Waits for the end of a process, which need not be a child.
class Watched {
 public:
  explicit Watched(pid_t pid);
  bool alive() const;
  void wait_for_end() const;

 private:
  Fd pidfd_;
};

}  // namespace tutti::testing
