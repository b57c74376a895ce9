// What happened to a job, from what its ranks wrote when it was aborted (TUTTI_REPORT).
#pragma once

#include <filesystem>
#include <string>

#include "base/json.h"

namespace tutti::tool {

// {"job", "reports": [what each rank of it wrote, of each communicator], "guesses":
// [{"communicator", "guess"}], "other_jobs": how many, "skipped": ["file: why"]}. Of files that
// were written after `since`, and of the job, or of that start of a job, which wrote last. Files
// that make no sense are skipped. Throws Error(invalid_argument) where no other is there.
Json read_reports(const std::string& directory,
                  std::filesystem::file_time_type since = std::filesystem::file_time_type::min());

// Who was where, doing what, and a guess why.
std::string to_text(const Json& reports);

int show_report(const std::string& directory, bool json);

}  // namespace tutti::tool
