// Options that have another name in programs that people come from.
#pragma once

#include <string>
#include <vector>

#include "training/setup/command_line.h"

namespace tutti::tool {

void add_aliases(CommandLine& line);

// Throws UsageError where options of other programs contradict each other here; prints a note where
// one looks meant as there. `words` are what follows the program's name.
void check_borrowed_options(const std::vector<std::string>& words);

}  // namespace tutti::tool
