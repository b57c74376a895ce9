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

// Creates a pipe, close-on-exec at both ends.
Pipe make_pipe();

struct ChildSpec {
  std::vector<std::string> command;                // looked up in PATH
  std::map<std::string, std::string> environment;  // added to this process's environment
  std::string directory;                           // working directory; empty: this process's
  std::vector<int> pus;                            // hardware threads to bind to; empty: no binding
  int in = -1;                                     // -1: /dev/null
  int out = -1;                                    // -1: this process's own
  int err = -1;
  std::vector<int> inherited;    // descriptors to keep open under the same number
  bool die_with_parent = false;  // killed when the calling thread ends
  const Guard* guard = nullptr;  // ends its process group if this process dies
  // Limit of open files of the program; nothing: this process's.
  std::optional<rlimit> open_files;
};

// The command cannot be run. code() is 127 (not found) or 126 (not executable), as in shells.
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
