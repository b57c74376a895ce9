// The collective that a command line names.
#pragma once

#include <string>

#include "collectives/program/program.h"

namespace tutti::tool {

// One that has algorithms. Throws Error(invalid_argument) that tells which there are.
Collective collective_named(const std::string& name);

}  // namespace tutti::tool
