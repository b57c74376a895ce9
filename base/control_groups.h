// The control groups (cgroups, version 1 or 2) of this process.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tutti {

// A directory of a group, and the version of its files.
struct ControlGroup {
  std::filesystem::path path;
  bool is_first_version = false;
};

// Returns this process's groups that limit `controller` ("cpu", "memory"), from its own to the
// root. Directories that do not exist are listed too: a container sees its own group as the root,
// and /proc/self/cgroup then has a path that is not mounted. `root` is the directory that contains
// /proc and /sys.
std::vector<ControlGroup> control_groups(const std::string& controller,
                                         const std::string& root = "");

}  // namespace tutti
