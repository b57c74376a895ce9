// The whole of a file, as text.
#pragma once

#include <string>

#include "base/error.h"
#include "base/file_kind.h"

namespace tutti {

// True for an existing regular file; false also where that cannot be told.
bool is_regular_file(const std::string& path);

// Throws Error(system) where it cannot be read, with this detail, and Error(invalid_argument) where
// it has more bytes than a file of that kind may have.
std::string file_text(const std::string& path, FileKind kind, const ErrorDetail& detail = {});

}  // namespace tutti
