// Starts one process.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "tools/launcher/guard.h"

namespace tutti::tool {

struct Pipe {
  Fd read;
  Fd write;
};

// Creates a pipe whose ends are both close-on-exec.
Pipe make_pipe();

struct ChildSpec {
  std::vector<std::string> command;  // program, which is looked up in PATH, and its arguments
  // variables that are added to this process's environment
  std::map<std::string, std::string> environment;
  std::string directory;  // working directory; empty: that of this process
  std::vector<int> pus;   // hardware threads to which it is bound; empty: not bound
  int in = -1;            // descriptor of standard input; -1: /dev/null
  int out = -1;           // descriptor of standard output; -1: this process's own
  int err = -1;
  std::vector<int> inherited;    // descriptors to keep open under the same number
  bool die_with_parent = false;  // true: the process is killed when the calling thread ends
  const Guard* guard = nullptr;  // kills the process group if this process dies; null: no guard
  // Limit of open files of the program; nothing: the same limit as for this process.
  std::optional<rlimit> open_files;
};

// Thrown if the command cannot be run. code() is 127 (not found) or 126 (not executable), as in
// shells.
class StartError : public Error {
 public:
  StartError(const std::string& what, const ErrorDetail& detail, int exit_code)
      : Error(ErrorCode::system, what, detail), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// Starts the process in a new process group with no signal blocked. Returns its id once the program
// runs; otherwise throws StartError and leaves no process behind.
pid_t start_child(const ChildSpec& spec);

}  // namespace tutti::tool
