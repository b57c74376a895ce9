// A command whose output is kept.
#pragma once

#include <chrono>
#include <string>

#include "tools/launcher/child.h"

namespace tutti::tool {

struct Captured {
  bool in_time = true;  // else it was killed
  int code = 0;         // as a shell would say it
  std::string out;
  std::string err;
};

// Waits until it and whoever else holds its output has ended; kills it when that takes longer than
// `within`. It dies with this thread. Throws StartError.
Captured run_captured(ChildSpec spec, std::chrono::milliseconds within);

// The last of what it said on standard error, for an error's text.
std::string last_words(std::string text);

}  // namespace tutti::tool
