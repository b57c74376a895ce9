// Reads whole files as text.
#pragma once

#include <string>

#include "base/error.h"
#include "base/file_kind.h"

namespace tutti {

// Returns true if `path` is an existing regular file; returns false also on errors.
bool is_regular_file(const std::string& path);

// Returns the file's text. Throws Error(system) with `detail` if the file cannot be read, and
// Error(invalid_argument) if it exceeds the size limit of its kind.
std::string file_text(const std::string& path, FileKind kind, const ErrorDetail& detail = {});

}  // namespace tutti
