// A launcher under test.
#pragma once

#include <string>
#include <vector>

#include "tests/support/process.h"

namespace tutti::tool {

using testing::Process;
using testing::Result;
using testing::Watched;

// The program under test.
std::string launcher_path();

// One with `ranks` ranks on `hosts` ("-": this one), with prefixes, each running `command`.
Process start_launcher(int ranks, const std::string& hosts, std::vector<std::string> command,
                       Process::Environment environment = {});

// One that runs `script` in bash on this host, to the end.
Result launch_script(int ranks, const std::string& script, Process::Environment environment = {});

}  // namespace tutti::tool
