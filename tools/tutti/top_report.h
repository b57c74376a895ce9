// What happened to a job, from what its ranks wrote when it was aborted (TUTTI_REPORT).
#pragma once

#include <filesystem>
#include <string>

#include "base/json.h"

namespace tutti::tool {

// {"reports": [what each rank wrote, of each communicator], "guesses": [{"communicator",
// "guess"}]}. Of files that were written after `since`. Throws Error(invalid_argument) where there
// is none, and for a file that makes no sense.
Json read_reports(const std::string& directory,
                  std::filesystem::file_time_type since = std::filesystem::file_time_type::min());

// Who was where, doing what, and a guess why.
std::string to_text(const Json& reports);

int show_report(const std::string& directory, bool json);

}  // namespace tutti::tool
