// Runs the command once with the faults of one plan, and reports its outcome.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "tools/chaos/plan.h"
#include "tools/launcher/signals.h"

namespace tutti::tool::chaos {

// Thrown when a signal asks this process to end.
class Stopped : public Error {
 public:
  explicit Stopped(int signal);
  int signal() const { return signal_; }

 private:
  int signal_;
};

struct Conditions {
  std::vector<std::string> command;  // "{dir}" in a word stands for the trial's directory
  std::map<std::string, std::string> environment;
  // receives the signals that end this process; shared by all trials
  SignalInbox* signals;
  std::vector<std::string> hosts = {};  // network namespaces of all hosts of the command
  // Number of ranks that the command starts on this host. The times of faults count from the start
  // of the last of these ranks.
  size_t ranks = 0;
  // Maximum time from the command's start, or from the last beginning or end of a fault, to its
  // end.
  std::chrono::milliseconds limit = std::chrono::hours(24);
};

struct Outcome {
  bool hung = false;
  int code = 0;               // shell exit code; undefined if it hung
  double seconds = 0;         // seconds from start to end
  double seconds_after = 0;   // seconds from the last beginning or end of a fault to the end
  size_t ranks = 0;           // largest number of simultaneous ranks
  std::vector<Fault> struck;  // the plan's faults that struck
  std::string out;
  std::string err;
  // descriptions of processes and files that the command left behind
  std::vector<std::string> left;
};

// Runs the command. Kills all remaining descendants before it returns or throws. Throws StartError
// and Stopped.
Outcome run_trial(const Plan& plan, const Conditions& conditions);

}  // namespace tutti::tool::chaos
