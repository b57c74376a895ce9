// Log lines to standard error: "tutti [rank 3] warning: ...". A healthy run prints nothing.
#pragma once

#include <string_view>

namespace tutti {

enum class LogLevel { error = 0, warning = 1, info = 2, debug = 3 };

// Returns true if lines of this level are printed. The setting TUTTI_LOG names the most detailed
// level that is printed.
bool log_enabled(LogLevel level);
void log(LogLevel level, std::string_view text);

// Sets the rank shown in later lines of the calling thread; -1 (the default) shows none. Ranks may
// be threads.
void set_log_rank(int rank);
int log_rank();

}  // namespace tutti
