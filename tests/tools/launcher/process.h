// A launcher under test, as a process of its own.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "base/fd.h"

namespace tutti::tool {

struct Result {
  int code = 0;  // as a shell would say it
  std::string out;
  std::string err;
};

class Process {
 public:
  using Environment = std::map<std::string, std::string>;

  // The launcher with `ranks` ranks on `hosts` ("-": this one), with prefixes, each running
  // `command`.
  Process(int ranks, const std::string& hosts, std::vector<std::string> command,
          Environment environment = {});
  ~Process();

  pid_t pid() const { return pid_; }
  // Reads its standard output up to and with the `count`-th line so far; returns all lines so far.
  std::vector<std::string> read_lines(size_t count);
  // Reads everything and waits for its end.
  Result finish();

 private:
  pid_t pid_ = -1;
  Fd out_;
  Fd err_;
  std::string text_;
};

// One that runs `script` in bash on this host, to the end.
Result launch_script(int ranks, const std::string& script, Process::Environment environment = {});

// Something that waits for the end of any process, not only of children.
class Watched {
 public:
  explicit Watched(pid_t pid);
  bool alive() const;
  void wait_for_end() const;

 private:
  Fd pidfd_;
};

}  // namespace tutti::tool
