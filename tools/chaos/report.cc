#include "tools/chaos/report.h"

#include <algorithm>
#include <cstdio>

#include "base/text.h"
#include "tools/launcher/captured.h"

namespace tutti::tool::chaos {

namespace {

struct Counts {
  std::string name;
  int trials = 0;
  int missed = 0;
  int survived = 0;
  int errors = 0;
  int hangs = 0;
  int wrong = 0;
  int leaks = 0;
  int to_name = 0;
  int named = 0;
  int failures = 0;
  double slowest = 0;
};

void add(const TrialRecord& tried, Counts& counts) {
  const Verdict& verdict = tried.verdict;
  counts.trials += 1;
  counts.missed += verdict.missed ? 1 : 0;
  counts.survived += verdict.survived && !verdict.missed ? 1 : 0;
  counts.errors += !verdict.survived && !verdict.hung ? 1 : 0;
  counts.hangs += verdict.hung ? 1 : 0;
  counts.wrong += verdict.wrong ? 1 : 0;
  counts.leaks += verdict.leaked ? 1 : 0;
  counts.to_name += verdict.named ? 1 : 0;
  counts.named += verdict.named.value_or(false) ? 1 : 0;
  counts.failures += verdict.problems.empty() ? 0 : 1;
  counts.slowest = std::max(counts.slowest, tried.outcome.seconds_after);
}

// Returns the counts of each class, in the order of first occurrence, followed by the total.
std::vector<Counts> count(const std::vector<TrialRecord>& trials) {
  std::vector<Counts> classes;
  Counts all{.name = "all"};
  for (const TrialRecord& tried : trials) {
    auto found = std::ranges::find(classes, tried.plan.fault_class, &Counts::name);
    if (found == classes.end()) {
      classes.push_back({.name = tried.plan.fault_class});
      found = classes.end() - 1;
    }
    add(tried, *found);
    add(tried, all);
  }
  classes.push_back(all);
  return classes;
}

}  // namespace

std::string failure_in_words(const TrialRecord& tried, int number) {
  std::string text = cat("trial ", number, " (", tried.plan.fault_class, "):");
  for (const Fault& fault : tried.plan.faults) {
    const bool met = std::ranges::count(tried.outcome.struck, fault) > 0;
    text += cat(&fault == &tried.plan.faults.front() ? " " : "; ", in_words(fault),
                met ? "" : " (did not strike)");
  }
  text += '\n';
  for (const std::string& problem : tried.verdict.problems) text += cat("  ", problem, '\n');
  const std::string words = last_words(tried.outcome.err);
  if (!words.empty()) text += "  last output:\n";
  for (const std::string& line : split(words, '\n')) text += cat("    ", line, '\n');
  return text + cat("  plan: ", to_json({tried.plan}).dump(), '\n');
}

std::string table(const std::vector<TrialRecord>& trials) {
  std::string text =
      "faults    trials missed survived errors hangs wrong leaks   named slowest(s) failures\n";
  for (const Counts& c : count(trials)) {
    char line[200];
    std::snprintf(line, sizeof line, "%-9s %6d %6d %8d %6d %5d %5d %5d %3d/%-3d %10.1f %8d\n",
                  c.name.c_str(), c.trials, c.missed, c.survived, c.errors, c.hangs, c.wrong,
                  c.leaks, c.named, c.to_name, c.slowest, c.failures);
    text += line;
  }
  return text;
}

Json to_json(const std::vector<TrialRecord>& trials) {
  Json classes = Json::array();
  for (const Counts& c : count(trials)) {
    classes.push_back({{"class", c.name},
                       {"trials", c.trials},
                       {"missed", c.missed},
                       {"survived", c.survived},
                       {"errors", c.errors},
                       {"hangs", c.hangs},
                       {"wrong", c.wrong},
                       {"leaks", c.leaks},
                       {"to_name", c.to_name},
                       {"named", c.named},
                       {"slowest_seconds", c.slowest},
                       {"failures", c.failures}});
  }
  Json failures = Json::array();
  for (size_t i = 0; i < trials.size(); ++i) {
    const TrialRecord& tried = trials[i];
    if (tried.verdict.problems.empty()) continue;
    failures.push_back({{"trial", i + 1},
                        {"problems", tried.verdict.problems},
                        {"code", tried.outcome.code},
                        {"seconds", tried.outcome.seconds},
                        {"out", tried.outcome.out},
                        {"err", tried.outcome.err},
                        {"plan", to_json({tried.plan})}});
  }
  return {{"classes", classes}, {"failures", failures}};
}

}  // namespace tutti::tool::chaos
