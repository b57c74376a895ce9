// Runs a command and captures its output.
#pragma once

#include <chrono>
#include <string>

#include "tools/launcher/child.h"

namespace tutti::tool {

struct Captured {
  bool in_time = true;  // false: the command was killed after the timeout
  int code = 0;         // shell exit code
  std::string out;
  std::string err;
};

// Runs a command, and blocks until the command and every other process that holds its output have
// ended. Kills it after `within`. The command dies with this thread. Throws StartError.
Captured run_captured(ChildSpec spec, std::chrono::milliseconds within);

// Returns the last lines of a text, such as standard error, for an error message.
std::string last_words(std::string text);

}  // namespace tutti::tool
