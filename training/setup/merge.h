// One configuration over another: a file's, and what was said besides.
#pragma once

#include <string>

#include "base/json.h"

namespace tutti::training {

// Throws Error(invalid_argument) that says the file, the line and the column.
Json read_configuration_file(const std::string& path);

// `file` with what `said` says: null, in either, takes a setting away, and what is said instead of
// another one
// (--epochs, --steps) takes the file's. Where another kind of model or optimizer is said, what the
// file says of its own kind alone goes with it.
Json merged(const Json& file, const Json& said);

}  // namespace tutti::training
