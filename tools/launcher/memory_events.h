// Whether the kernel's out-of-memory killer was at work. To whoever it kills, and to whoever waits
// for that, it looks like any signal 9; but the kernel counts what it does, for each control group
// of processes (container, batch job) and for the host.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::tool {

class OutOfMemoryWatch {
 public:
  // `root`: where /proc and /sys are.
  explicit OutOfMemoryWatch(std::string root = "");

  // For processes of this group, `killed` in number, that signal 9 has ended since the last
  // question (or the start): "by the kernel's out-of-memory killer ..."; empty when it was not.
  std::string explain(int killed);

 private:
  struct Counts {
    int64_t group = 0;
    int64_t host = 0;
  };
  Counts counts() const;
  std::string limit() const;

  std::string root_;
  std::string mount_;  // of the control groups that count memory
  std::string group_;  // this process's: `mount_`, or a folder below it
  bool first_version_ = false;
  Counts before_;
};

}  // namespace tutti::tool
