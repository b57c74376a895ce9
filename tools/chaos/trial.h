// One run of the command with the faults of one plan: what was done to it, and what became of it.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "tools/chaos/plan.h"
#include "tools/launcher/signals.h"

namespace tutti::tool::chaos {

// A signal has told this process to end.
class Stopped : public Error {
 public:
  explicit Stopped(int signal);
  int signal() const { return signal_; }

 private:
  int signal_;
};

struct Conditions {
  std::vector<std::string> command;  // "{dir}" in a word is the trial's directory
  std::map<std::string, std::string> environment;
  SignalInbox* signals;                 // those that end this process: not lost between two trials
  std::vector<std::string> hosts = {};  // all of the command's: network namespaces
  size_t ranks = 0;  // that the command starts here: times count from when all are there
  // From the last fault, or else from the start, to the end.
  std::chrono::milliseconds limit = std::chrono::hours(24);
};

struct Outcome {
  bool hung = false;
  int code = 0;               // as a shell would say it; of no meaning where it hung
  double seconds = 0;         // from start to end
  double seconds_after = 0;   // from the last fault
  size_t ranks = 0;           // the most that there were at a time
  std::vector<Fault> struck;  // of the plan's faults those that were met
  std::string out;
  std::string err;
  std::vector<std::string> left;  // processes and files, in words
};

// Ends all that the command has left before it returns or throws. Throws StartError and Stopped.
Outcome run_trial(const Plan& plan, const Conditions& conditions);

}  // namespace tutti::tool::chaos
