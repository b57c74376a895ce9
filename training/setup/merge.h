// Merges a configuration file with options.
#pragma once

#include <string>

#include "base/json.h"

namespace tutti::training {

// Reads a file. Throws Error(invalid_argument) that names the file, the line and the column.
Json read_configuration_file(const std::string& path);

// Returns `file`, overridden by `given`. A null in either removes a setting. If `given` has one of
// two alternative settings (--epochs, --steps), the other one is removed from the file's settings.
// If `given` has another kind of model or optimizer than the file, settings that the given kind
// does not have are removed as well.
Json merged(const Json& file, const Json& given);

}  // namespace tutti::training
