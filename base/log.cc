#include "base/log.h"

#include <unistd.h>

#include <string>

#include "base/settings.h"

namespace tutti {

namespace {
thread_local int t_rank = -1;

LogLevel level_from_settings() {
  const std::string text = settings().get_string("TUTTI_LOG");
  if (text == "error") return LogLevel::error;
  if (text == "info") return LogLevel::info;
  if (text == "debug") return LogLevel::debug;
  return LogLevel::warning;
}

}  // namespace

void set_log_rank(int rank) { t_rank = rank; }
int log_rank() { return t_rank; }

bool log_enabled(LogLevel level) {
  static const LogLevel limit = level_from_settings();
  return level <= limit;
}

void log(LogLevel level, std::string_view text) {
  if (!log_enabled(level)) return;
  static constexpr std::string_view kNames[] = {"error", "warning", "info", "debug"};
  std::string line = "tutti";
  if (t_rank >= 0) line += " [rank " + std::to_string(t_rank) + "]";
  line.append(" ").append(kNames[static_cast<int>(level)]).append(": ").append(text).append("\n");
  // One write per line keeps lines of several threads and processes apart.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace tutti
