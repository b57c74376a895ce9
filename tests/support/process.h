// A program under test, as a process of its own, with bounds on everything that is waited for: what
// takes longer fails the test and is killed.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "base/fd.h"

namespace tutti::testing {

// Generous: only a hang reaches it.
inline constexpr std::chrono::seconds kPatience{60};

struct Result {
  int code = 0;  // as a shell would say it
  std::string out;
  std::string err;
};

class Process {
 public:
  using Environment = std::map<std::string, std::string>;

  // In a process group of its own, with `environment` on top of this process's.
  explicit Process(std::vector<std::string> command, Environment environment = {});
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();  // kills it, unless it was finished

  pid_t pid() const { return pid_; }
  // Reads its standard output up to and with the `count`-th line so far; returns all lines so far.
  std::vector<std::string> read_lines(size_t count);
  // Reads everything and waits for its end.
  Result finish(std::chrono::milliseconds limit = kPatience);

 private:
  void kill_group();

  std::string command_;
  pid_t pid_ = -1;
  Fd out_;
  Fd err_;
  std::string text_;
};

// Something that waits for the end of any process, not only of children.
class Watched {
 public:
  explicit Watched(pid_t pid);
  bool alive() const;
  void wait_for_end() const;

 private:
  Fd pidfd_;
};

}  // namespace tutti::testing
