// What people and programs are told of all trials.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "tools/chaos/plan.h"
#include "tools/chaos/trial.h"
#include "tools/chaos/verdict.h"

namespace tutti::tool::chaos {

struct Tried {
  Plan plan;
  Outcome outcome;
  Verdict verdict;
};

// Of the trial with this number: its faults, what is wrong, what it said last, and its plan.
std::string failure_in_words(const Tried& tried, int number);
// Trials, outcomes and the slowest end, by class.
std::string table(const std::vector<Tried>& trials);
// The same, with each failure's plan as a file to be run again.
Json to_json(const std::vector<Tried>& trials);

}  // namespace tutti::tool::chaos
