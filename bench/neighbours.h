// Creates load during a benchmark: busy processes, and a limit of processor time. Both are for the
// single-threaded process that starts the ranks.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <vector>

namespace tutti::bench {

// Processes that compute continuously until the object or this process ends.
class BusyProcesses {
 public:
  // Starts `count` processes. Throws Error(system) if one cannot be started.
  explicit BusyProcesses(int count);
  BusyProcesses(const BusyProcesses&) = delete;
  BusyProcesses& operator=(const BusyProcesses&) = delete;
  ~BusyProcesses();

 private:
  void stop();

  std::vector<pid_t> processes_;
};

// A control group (version 1 or 2) with a limit of processor time, to which this process and its
// later children belong.
class ProcessorQuota {
 public:
  // Creates the group. `processors`: limit in seconds of processor time per second. Throws
  // Error(unsupported) if this process may not create such a group.
  explicit ProcessorQuota(double processors);
  ProcessorQuota(const ProcessorQuota&) = delete;
  ProcessorQuota& operator=(const ProcessorQuota&) = delete;
  // Moves this process back to its original group. Its child processes must have ended.
  ~ProcessorQuota();

 private:
  std::filesystem::path home_;  // original group of this process
  std::filesystem::path group_;
};

}  // namespace tutti::bench
