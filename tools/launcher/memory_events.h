// Detects kills by the kernel's out-of-memory killer. A waiting parent sees only signal 9, but the
// kernel counts these kills for each control group (container, batch job) and for the host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/control_groups.h"

namespace tutti::tool {

class OutOfMemoryWatch {
 public:
  // Starts to watch. `root`: directory that contains /proc and /sys.
  explicit OutOfMemoryWatch(std::string root = "");

  // Explains why `killed` processes of this control group have died of signal 9 since the last call
  // (or the start): "by the kernel's out-of-memory killer ...", preceded by "probably" if the
  // kernel's count for this group does not include all of them. Returns an empty text if the kernel
  // has killed no process of this group or host.
  std::string explain(int killed);

 private:
  struct Counts {
    int64_t group = 0;
    int64_t host = 0;
  };
  Counts counts() const;
  std::string limit() const;

  std::string root_;
  // groups of one version, from this process's own group to the root
  std::vector<ControlGroup> groups_;
  Counts before_;
};

}  // namespace tutti::tool
