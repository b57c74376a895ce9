// One run of the command with the faults of one plan, and its outcome.
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
  std::vector<std::string> command;  // "{dir}" in a word is the trial's directory
  std::map<std::string, std::string> environment;
  SignalInbox* signals;                 // signals that end this process, kept between trials
  std::vector<std::string> hosts = {};  // all of the command's: network namespaces
  // That the command starts on this host; times count from the start of the last one.
  size_t ranks = 0;
  // Time limit from the last fault, or from the start without faults, to the end.
  std::chrono::milliseconds limit = std::chrono::hours(24);
};

struct Outcome {
  bool hung = false;
  int code = 0;               // shell exit code; undefined if it hung
  double seconds = 0;         // from start to end
  double seconds_after = 0;   // from the last fault
  size_t ranks = 0;           // largest number of simultaneous ranks
  std::vector<Fault> struck;  // the plan's faults that struck
  std::string out;
  std::string err;
  std::vector<std::string> left;  // processes and files, in words
};

// Runs the command. Ends all remaining descendants before it returns or throws. Throws StartError
// and Stopped.
Outcome run_trial(const Plan& plan, const Conditions& conditions);

}  // namespace tutti::tool::chaos
