// Supports option names of similar programs.
#pragma once

#include <string>
#include <vector>

#include "training/setup/command_line.h"

namespace tutti::tool {

void add_aliases(CommandLine& line);

// Throws UsageError if aliased options contradict each other. Prints a note about an option that
// has another meaning in such a program. `words`: the command line after the program's name.
void check_borrowed_options(const std::vector<std::string>& words);

}  // namespace tutti::tool
