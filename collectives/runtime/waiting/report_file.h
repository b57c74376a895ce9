// A file that a separate thread writes. A file system that hangs thus blocks only the destructor
// and, for a limited time, the exit of the process.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <thread>

#include "transport/bootstrap/control/process.h"

namespace tutti::internal {

// Makes exit() wait for at most two seconds while an object of this class lives, because programs
// that end on an error seldom destroy their objects first.
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

  // Writes the file; call it at most once. It is written under a temporary name first, so that
  // readers never see a partial file. Failures are logged.
  void write(const std::string& path, const std::string& text);

 private:
  const pid_t pid_ = bootstrap::current_process();
  std::unique_ptr<std::thread> thread_;
};

}  // namespace tutti::internal
