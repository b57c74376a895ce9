// Starts a launcher under test.
#pragma once

#include <string>
#include <vector>

#include "tests/support/process.h"

namespace tutti::tool {

using testing::Process;
using testing::Result;
using testing::Watched;

// Returns the path of the program under test.
std::string launcher_path();

// Starts a launcher that runs `command` on `ranks` ranks on `hosts` ("-": this host) and prefixes
// their output lines.
Process start_launcher(int ranks, const std::string& hosts, std::vector<std::string> command,
                       Process::Environment environment = {});

// Runs `script` in bash on `ranks` ranks of this host, and returns when all have ended.
Result launch_script(int ranks, const std::string& script, Process::Environment environment = {});

}  // namespace tutti::tool
