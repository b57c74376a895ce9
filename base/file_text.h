// Reads whole files as text.
#pragma once

#include <string>

#include "base/error.h"
#include "base/file_kind.h"

namespace tutti {

// Returns true for an existing regular file; false also if the system cannot tell.
bool is_regular_file(const std::string& path);

// Returns the file's text. Throws Error(system) with `detail` if the file cannot be read, and
// Error(invalid_argument) if it exceeds the size limit of its kind.
std::string file_text(const std::string& path, FileKind kind, const ErrorDetail& detail = {});

}  // namespace tutti
