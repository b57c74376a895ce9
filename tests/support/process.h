// A program under test as a child process, with limits on all waits: exceeding one fails the test
// and kills the process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "base/fd.h"

namespace tutti::testing {

// A generous time limit, which only a hang exceeds.
inline constexpr std::chrono::seconds kPatience{60};

struct Result {
  int code = 0;  // exit code as in a shell
  std::string out;
  std::string err;
};

class Process {
 public:
  using Environment = std::map<std::string, std::string>;

  // Starts in its own process group, with `environment` added to this process's.
  explicit Process(std::vector<std::string> command, Environment environment = {});
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();  // kills it, unless it was finished

  pid_t pid() const { return pid_; }
  // Reads standard output up to and including the `count`-th line in total; returns all lines so
  // far.
  std::vector<std::string> read_lines(size_t count);
  // Reads everything and waits for the end of the process.
  Result finish(std::chrono::milliseconds limit = kPatience);

 private:
  void kill_group();

  std::string command_;
  pid_t pid_ = -1;
  Fd out_;
  Fd err_;
  std::string text_;
};

// Waits for the end of any process, not only of children.
class Watched {
 public:
  explicit Watched(pid_t pid);
  bool alive() const;
  void wait_for_end() const;

 private:
  Fd pidfd_;
};

}  // namespace tutti::testing
