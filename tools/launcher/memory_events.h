// Detects kills by the kernel's out-of-memory killer. A waiting parent only sees signal 9, but the
// kernel counts these kills for each control group (container, batch job) and for the host.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::tool {

class OutOfMemoryWatch {
 public:
  // `root`: directory that contains /proc and /sys.
  explicit OutOfMemoryWatch(std::string root = "");

  // Explains the death of `killed` processes of this group by signal 9 since the last call (or the
  // start): "by the kernel's out-of-memory killer ..."; empty if that did not kill them.
  std::string explain(int killed);

 private:
  struct Counts {
    int64_t group = 0;
    int64_t host = 0;
  };
  Counts counts() const;
  std::string limit() const;

  std::string root_;
  std::string mount_;  // mount of the memory control groups
  std::string group_;  // this process's: `mount_`, or a folder below it
  bool first_version_ = false;
  Counts before_;
};

}  // namespace tutti::tool
