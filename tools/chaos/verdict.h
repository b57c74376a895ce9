// From what became of a trial to what is wrong with it. Nothing here looks at the machine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/chaos/plan.h"
#include "tools/chaos/trial.h"

namespace tutti::tool::chaos {

struct Demands {
  bool survives = false;    // the command ends with 0 wherever somebody is left to go on
  std::string same_output;  // a regular expression; empty: none
  double tolerance = 0;     // of the numbers in what it matches, relative
};

struct Verdict {
  bool missed = false;  // no fault was met
  bool survived = false;
  bool hung = false;
  bool wrong = false;
  bool leaked = false;
  std::optional<bool> named;          // nothing: there is nobody to be named
  std::vector<std::string> problems;  // in words; empty: the trial is passed
};

// All matches of the expression in the text. Throws Error(invalid_argument) where the expression is
// none.
std::vector<std::string> matches(const std::string& expression, const std::string& text);

// `undisturbed`: what became of the command without faults.
Verdict judge(const Plan& plan, const Outcome& outcome, const Outcome& undisturbed,
              const Demands& demands);

}  // namespace tutti::tool::chaos
