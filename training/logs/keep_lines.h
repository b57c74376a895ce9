// Truncation of a log file to the lines that are still valid when a run continues.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/file_kind.h"

namespace tutti::training {

// Removes the lines (passed without line ends) for which `keeps` is false, and an incomplete last
// line, which a killed process may have left. Throws Error(system) if the file cannot be read or
// written, and what `keeps` throws.
void keep_lines(const std::string& path, const std::function<bool(std::string_view)>& keeps,
                FileKind kind = FileKind::losses);

}  // namespace tutti::training
