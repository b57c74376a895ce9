// Formats reports of all trials, as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "tools/chaos/plan.h"
#include "tools/chaos/trial.h"
#include "tools/chaos/verdict.h"

namespace tutti::tool::chaos {

struct TrialRecord {
  Plan plan;
  Outcome outcome;
  Verdict verdict;
};

// Returns a description of a failed trial: its number, faults, problems, last output and plan.
std::string failure_in_words(const TrialRecord& tried, int number);
// Returns a table with a line per class of faults: counts of trials and outcomes, and the longest
// time to the end of the command.
std::string table(const std::vector<TrialRecord>& trials);
// Returns the counts of table() as JSON, and the failed trials with their plans in the format of
// --plan.
Json to_json(const std::vector<TrialRecord>& trials);

}  // namespace tutti::tool::chaos
