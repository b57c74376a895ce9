#include "collectives/runtime/waiting/report_file.h"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <system_error>
#include <utility>

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

// Counts the ExitWaits objects of the process that created it. A forked child ignores its copy,
// because it has none of the parent's threads.
struct Awaited {
  const pid_t pid = bootstrap::current_process();
  std::mutex mutex;
  std::condition_variable changed;
  int count = 0;

  bool is_of_this_process() const { return pid == bootstrap::current_process(); }
};

void wait_for_all();

// Returns the count. It is never destroyed, because a thread may still be writing when exit() stops
// waiting.
Awaited& awaited() {
  static Awaited& all = []() -> Awaited& {
    std::atexit(wait_for_all);
    return *new Awaited;
  }();
  return all;
}

void wait_for_all() {
  constexpr std::chrono::seconds kAtMost{2};
  Awaited& all = awaited();
  if (!all.is_of_this_process()) return;
  std::unique_lock lock(all.mutex);
  all.changed.wait_for(lock, kAtMost, [&] { return all.count == 0; });
}

void add_awaited(int change) {
  Awaited& all = awaited();
  if (!all.is_of_this_process()) return;
  const std::lock_guard lock(all.mutex);
  all.count += change;
  if (all.count == 0) all.changed.notify_all();
}

}  // namespace

ExitWaits::ExitWaits() { add_awaited(1); }
ExitWaits::~ExitWaits() { add_awaited(-1); }

ReportFile::~ReportFile() {
  if (!thread_) return;
  if (bootstrap::current_process() != pid_) {
    static_cast<void>(thread_.release());  // the thread runs only in the parent
  } else {
    thread_->join();
  }
}

void ReportFile::write(const std::string& path, const std::string& text) {
  const int rank = log_rank();
  try {
    const SignalsBlocked blocked;
    auto waits = std::make_shared<ExitWaits>();
    thread_ = std::make_unique<std::thread>([=, waits = std::move(waits)] {
      set_log_rank(rank);
      write_file(path, text);
    });
  } catch (const std::system_error& error) {
    log(LogLevel::warning, cat("cannot write ", path, " (TUTTI_REPORT): ", error.what()));
  }
}

}  // namespace tutti::internal
