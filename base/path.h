// Looks up installed programs.
#pragma once

#include <string>

namespace tutti {

// Returns the program's path by the environment's PATH; empty if there is none.
std::string find_program(const std::string& name);

}  // namespace tutti
