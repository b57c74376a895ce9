// Supports option names of similar programs.
#pragma once

#include <string>
#include <vector>

#include "training/setup/command_line.h"

namespace tutti::tool {

void add_aliases(CommandLine& line);

// Throws UsageError if `train` gets --load and --save with different directories. Prints a note if
// `bench` gets -n together with options of nccl-tests (-b, -e, -f), because -n means --iterations
// in nccl-tests. `words`: the arguments after the program's name, the command first.
void check_borrowed_options(const std::vector<std::string>& words);

}  // namespace tutti::tool
