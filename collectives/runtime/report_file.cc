#include "collectives/runtime/report_file.h"

#include <cstdio>
#include <fstream>
#include <system_error>

#include "base/log.h"
#include "base/signals_blocked.h"
#include "base/text.h"

namespace tutti::internal {

namespace {

void write_file(const std::string& path, const std::string& text) {
  const std::string draft = path + ".tmp";
  std::ofstream file(draft);
  file << text;
  file.close();
  if (file && std::rename(draft.c_str(), path.c_str()) == 0) return;
  std::remove(draft.c_str());
  log(LogLevel::warning, cat("cannot write ", path, " (TUTTI_REPORT)"));
}

}  // namespace

ReportFile::~ReportFile() {
  if (!thread_) return;
  if (bootstrap::current_process() != pid_) {
    static_cast<void>(thread_.release());  // it runs in the parent only; there is nothing to join
  } else {
    thread_->join();
  }
}

void ReportFile::write(const std::string& path, const std::string& text) {
  const int rank = log_rank();
  try {
    const SignalsBlocked blocked;
    thread_ = std::make_unique<std::thread>([=] {
      set_log_rank(rank);
      write_file(path, text);
    });
  } catch (const std::system_error& error) {
    log(LogLevel::warning, cat("cannot write ", path, " (TUTTI_REPORT): ", error.what()));
  }
}

}  // namespace tutti::internal
