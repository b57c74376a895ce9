#include "tools/process_list.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/parse_number.h"
#include "base/text.h"

namespace tutti {

std::vector<pid_t> all_processes() {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const auto pid = parse_number<pid_t>(entry.path().filename().native());
    if (pid) found.push_back(*pid);
  }
  return found;
}

std::map<std::string, std::string> environment_of(pid_t pid) {
  std::ifstream file(cat("/proc/", pid, "/environ"), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::map<std::string, std::string> variables;
  for (const std::string& variable : split(text, '\0')) {
    const size_t end = variable.find('=');
    if (end != std::string::npos) {
      variables.emplace(variable.substr(0, end), variable.substr(end + 1));
    }
  }
  return variables;
}

}  // namespace tutti
