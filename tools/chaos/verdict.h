// Judges the outcome of a trial by pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/chaos/plan.h"
#include "tools/chaos/trial.h"

namespace tutti::tool::chaos {

struct Demands {
  bool survives = false;  // true: the command must exit with 0 if a rank survives
  // regular expression whose matches in the output must equal those of a run without faults; empty:
  // outputs are not compared
  std::string same_output;
  double tolerance = 0;  // relative tolerance of numbers in the matches of same_output
};

struct Verdict {
  bool missed = false;  // true if no fault struck
  bool survived = false;
  bool hung = false;
  bool wrong = false;
  bool leaked = false;
  // true if an error named the fault's rank; nothing: no rank has to be named
  std::optional<bool> named;
  std::vector<std::string> problems;  // empty: the trial passed
};

// Returns all matches of the regular expression in the text. Throws Error(invalid_argument) if the
// expression is malformed.
std::vector<std::string> matches(const std::string& expression, const std::string& text);

// Returns the verdict. `undisturbed`: outcome of the command without faults.
Verdict judge(const Plan& plan, const Outcome& outcome, const Outcome& undisturbed,
              const Demands& demands);

}  // namespace tutti::tool::chaos
