// A file of lines that a run goes on with: what is void of it is dropped.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/file_kind.h"

namespace tutti::training {

// Drops the lines (given without their ends) of which `keeps` is false, and half a line at the end,
// which a process that was killed may have left. Throws Error(system) where the file cannot be read
// or written, and what `keeps` throws.
void keep_lines(const std::string& path, const std::function<bool(std::string_view)>& keeps,
                FileKind kind = FileKind::losses);

}  // namespace tutti::training
