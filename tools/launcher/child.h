// Starting one process.
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

// Close-on-exec at both ends.
Pipe make_pipe();

struct ChildSpec {
  std::vector<std::string> command;                // looked up in PATH
  std::map<std::string, std::string> environment;  // set on top of this process's
  std::string directory;                           // to work in; empty: this process's
  std::vector<int> pus;                            // to bind to; empty: no binding
  int in = -1;                                     // -1: /dev/null
  int out = -1;                                    // -1: this process's own
  int err = -1;
  std::vector<int> inherited;    // descriptors kept open under the same number
  bool die_with_parent = false;  // killed when the calling thread ends
  const Guard* guard = nullptr;  // that shall end its process group if this process dies
  // The limit of open files that the program gets; nothing: this process's.
  std::optional<rlimit> open_files;
};

// The command cannot be run. code() is 127 (not found) or 126 (found, but refused), as shells say.
class StartError : public Error {
 public:
  StartError(const std::string& what, const ErrorDetail& detail, int exit_code)
      : Error(ErrorCode::system, what, detail), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// Starts the process in a process group of its own, with no signal blocked. Returns its id once the
// program runs; throws StartError otherwise, and then no process is left.
pid_t start_child(const ChildSpec& spec);

}  // namespace tutti::tool
