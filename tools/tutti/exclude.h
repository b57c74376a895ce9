// Options that a command does not support together.
#pragma once

#include <initializer_list>
#include <string>

#include "base/text.h"
#include "training/setup/command_line.h"

namespace tutti::tool {

// Throws UsageError if any of these options is given. `what`: the option or mode that excludes
// them.
inline void exclude(const Command& command, const std::string& what,
                    std::initializer_list<const char*> options) {
  for (const char* option : options) {
    if (command.count(option) > 0) throw UsageError(cat(what, " excludes ", option));
  }
}

}  // namespace tutti::tool
