// A file that a thread of its own writes, so that nobody waits for a file system that hangs but
// whoever wants to know that all is written: the destructor.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <thread>

#include "transport/bootstrap/process.h"

namespace tutti::internal {

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
