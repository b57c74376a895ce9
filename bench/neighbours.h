// What a benchmark shares the machine with: busy processes, and a limit of processor time. Both are
// meant for a process that has one thread and starts the ranks.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <vector>

namespace tutti::bench {

// Processes that compute without a pause, until the object or this process ends.
class BusyProcesses {
 public:
  // Throws Error(system) where a process cannot be started.
  explicit BusyProcesses(int count);
  BusyProcesses(const BusyProcesses&) = delete;
  BusyProcesses& operator=(const BusyProcesses&) = delete;
  ~BusyProcesses();

 private:
  void stop();

  std::vector<pid_t> processes_;
};

// A control group (version 1 or 2) with a limit of processor time, which this process and those
// that it starts from then on are in.
class ProcessorQuota {
 public:
  // `processors`: seconds of processor time in a second. Throws Error(unsupported) where this
  // process may not make such a group.
  explicit ProcessorQuota(double processors);
  ProcessorQuota(const ProcessorQuota&) = delete;
  ProcessorQuota& operator=(const ProcessorQuota&) = delete;
  // Moves this process back. The processes that it started must have ended.
  ~ProcessorQuota();

 private:
  std::filesystem::path home_;  // the group from which this process came
  std::filesystem::path group_;
};

}  // namespace tutti::bench
