// Programs that may be installed.
#pragma once

#include <string>

namespace tutti {

// The program's path, by the environment's PATH; empty where there is none of that name.
std::string find_program(const std::string& name);

}  // namespace tutti
