// Analyzes the reports that the ranks of an aborted job wrote (TUTTI_REPORT).
#pragma once

#include <filesystem>
#include <string>

#include "base/json.h"

namespace tutti::tool {

// Reads the reports and returns {"job", "reports": [report of each rank and communicator],
// "guesses": [{"communicator", "guess"}], "other_jobs": count, "skipped": ["file: why"]}. Reads the
// files written after `since`, and uses the reports of the latest start of a job. Skips malformed
// files. Throws Error(invalid_argument) if no valid file exists.
Json read_reports(const std::string& directory,
                  std::filesystem::file_time_type since = std::filesystem::file_time_type::min());

// Returns a description of each rank's state and of the guessed cause.
std::string to_text(const Json& reports);

int show_report(const std::string& directory, bool json);

}  // namespace tutti::tool
