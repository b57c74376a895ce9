// The whole of a file, as text.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "base/error.h"

namespace tutti {

// Throws Error(system) where it cannot be read, with this detail, and Error(invalid_argument) where
// it has more bytes than `most`.
std::string file_text(const std::string& path,
                      uintmax_t most = std::numeric_limits<uintmax_t>::max(),
                      const ErrorDetail& detail = {});

}  // namespace tutti
