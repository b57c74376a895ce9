// Merging of a configuration file with options.
#pragma once

#include <string>

#include "base/json.h"

namespace tutti::training {

// Throws Error(invalid_argument) with the file, the line and the column.
Json read_configuration_file(const std::string& path);

// Returns `file`, overridden by `said`. Null, in either, removes a setting; giving one of two
// alternative settings (--epochs, --steps) removes the file's other one. If another kind of model
// or optimizer is given, settings of the file's kind only are removed.
Json merged(const Json& file, const Json& said);

}  // namespace tutti::training
