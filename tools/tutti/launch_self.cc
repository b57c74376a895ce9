#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"
#include "tools/launcher/launcher.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/top/report.h"
#include "training/setup/command_line.h"

namespace tutti::tool {

void check_min_ranks(std::optional<int> min_ranks, int ranks) {
  if (min_ranks.value_or(0) <= ranks) return;
  throw UsageError(cat("--min-ranks ", *min_ranks, " exceeds the number of ranks, ", ranks));
}

int launch_job(const LaunchOptions& options) {
  const auto started = std::filesystem::file_time_type::clock::now();
  const int code = launch(options);
  const std::string directory = settings().get_string("TUTTI_REPORT");
  if (code == 0 || directory.empty()) return code;
  try {
    std::cerr << to_text(read_reports(directory, started));
    // there is no report: no communicator was aborted, or only on other hosts
  } catch (const Error&) {
  }
  return code;
}

int launch_self(LaunchOptions options, const std::vector<std::string>& more) {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> command;
  for (std::string word; std::getline(file, word, '\0');) command.push_back(word);
  if (command.empty()) {
    throw system_error("cannot read /proc/self/cmdline", errno, {.remedy = "mount /proc"});
  }
  command.front() = std::filesystem::read_symlink("/proc/self/exe");
  command.insert(command.end(), more.begin(), more.end());
  options.command = std::move(command);
  options.prefix_lines = false;
  return launch_job(options);
}

}  // namespace tutti::tool
