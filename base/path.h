// Looks up installed programs.
#pragma once

#include <string>

namespace tutti {

// Returns the path at which the environment's PATH finds the program; empty if there is none.
std::string find_program(const std::string& name);

}  // namespace tutti
