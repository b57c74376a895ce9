// A file that a thread of its own writes, so that nobody waits for a file system that hangs but
// whoever wants to know that all is written: the destructor, and for a while the process's exit.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <thread>

#include "transport/bootstrap/control/process.h"

namespace tutti::internal {

// While one lives, the end of the process by exit() waits for it, but for no more than two seconds:
// programs that end on an error seldom free what they have first.
class ExitWaits {
 public:
  ExitWaits();
  ~ExitWaits();
  ExitWaits(const ExitWaits&) = delete;
  ExitWaits& operator=(const ExitWaits&) = delete;
};

class ReportFile {
 public:
  ReportFile() = default;
  ~ReportFile();
  ReportFile(const ReportFile&) = delete;
  ReportFile& operator=(const ReportFile&) = delete;

  // At most once. Under another name first, so that nobody reads half of it. What fails is logged.
  void write(const std::string& path, const std::string& text);

 private:
  const pid_t pid_ = bootstrap::current_process();
  std::unique_ptr<std::thread> thread_;
};

}  // namespace tutti::internal
