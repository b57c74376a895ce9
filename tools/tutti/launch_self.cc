#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tools/launcher/launcher.h"
#include "tools/tutti/commands.h"

namespace tutti::tool {

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
  return launch(options);
}

}  // namespace tutti::tool
