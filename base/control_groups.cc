#include "base/control_groups.h"

#include <fstream>

#include "base/text.h"

namespace tutti {

namespace fs = std::filesystem;

std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& root) {
  std::vector<ControlGroup> found;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // The line is "4:cpu,cpuacct:/path" in version 1, "0::/path" in version 2.
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = cat(",", line.substr(first + 1, second - first - 1), ",");
    const bool is_first = controllers.find(cat(",", controller, ",")) != std::string::npos;
    if (!is_first && controllers != ",,") continue;
    const fs::path mount =
        cat(root, "/sys/fs/cgroup", is_first ? "/" : "", is_first ? controller : "");
    for (fs::path path = line.substr(second + 1);; path = path.parent_path()) {
      found.push_back({mount / path.relative_path(), is_first});
      if (path.relative_path().empty()) break;
    }
  }
  return found;
}

}  // namespace tutti
