// Truncates a log file to the lines that are still valid when a run continues.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/file_kind.h"

namespace tutti::training {

// Removes the lines for which `keeps`, called with the line without its end, returns false. Also
// removes an incomplete last line, which a killed process may have left. Throws Error(system) if
// the file cannot be read or written, and what `keeps` throws.
void keep_lines(const std::string& path, const std::function<bool(std::string_view)>& keeps,
                FileKind kind = FileKind::losses);

}  // namespace tutti::training
