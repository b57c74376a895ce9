// Merges a configuration file with options.
#pragma once

#include <string>

#include "base/json.h"

namespace tutti::training {

// Reads a file. Throws Error(invalid_argument) that names the file, the line and the column.
Json read_configuration_file(const std::string& path);

// Returns `file`, overridden by `given`. A null in either removes a setting. Giving one of two
// alternative settings (--epochs, --steps) removes the other one of the file. If another kind of
// model or optimizer is given, settings that only the file's kind has are removed.
Json merged(const Json& file, const Json& given);

}  // namespace tutti::training
