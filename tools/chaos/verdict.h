// Judges the outcome of a trial by pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/chaos/plan.h"
#include "tools/chaos/trial.h"

namespace tutti::tool::chaos {

struct Demands {
  // true: the command must exit with 0 if a rank survives; false: only after harmless faults
  bool survives = false;
  // regular expression whose last match in the output of a command that exits with 0 must equal the
  // last match in a run without faults; empty: outputs are not compared
  std::string same_output;
  double tolerance = 0;  // relative tolerance of numbers in the matches of same_output
};

struct Verdict {
  bool missed = false;  // true if the plan has faults but none struck
  bool survived = false;
  bool hung = false;
  bool wrong = false;
  bool leaked = false;
  // true if errors named all ranks that they must name; nothing: no rank has to be named
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
