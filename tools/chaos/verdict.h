// Judges the outcome of a trial. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/chaos/plan.h"
#include "tools/chaos/trial.h"

namespace tutti::tool::chaos {

struct Demands {
  bool survives = false;    // the command must exit with 0 if a rank survives
  std::string same_output;  // a regular expression; empty: none
  double tolerance = 0;     // relative tolerance of numbers in its matches
};

struct Verdict {
  bool missed = false;  // no fault struck
  bool survived = false;
  bool hung = false;
  bool wrong = false;
  bool leaked = false;
  std::optional<bool> named;          // nothing: no rank has to be named
  std::vector<std::string> problems;  // empty: the trial passed
};

// Returns all matches of the regular expression in the text. Throws Error(invalid_argument) if the
// expression is malformed.
std::vector<std::string> matches(const std::string& expression, const std::string& text);

// `undisturbed`: outcome of the command without faults.
Verdict judge(const Plan& plan, const Outcome& outcome, const Outcome& undisturbed,
              const Demands& demands);

}  // namespace tutti::tool::chaos
