#include "tools/chaos/verdict.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <regex>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace tutti::tool::chaos {

namespace {

const std::regex kNumber(R"([-+]?\d+(\.\d*)?([eE][-+]?\d+)?)");

// Returns true if both texts are equal except for numbers, which may differ by `tolerance`.
bool alike(const std::string& a, const std::string& b, double tolerance) {
  if (a == b) return true;
  if (std::regex_replace(a, kNumber, "#") != std::regex_replace(b, kNumber, "#")) return false;
  const std::sregex_iterator end;
  std::sregex_iterator ours(a.begin(), a.end(), kNumber);
  for (std::sregex_iterator theirs(b.begin(), b.end(), kNumber); theirs != end; ++ours, ++theirs) {
    const double x = std::strtod(ours->str().c_str(), nullptr);
    const double y = std::strtod(theirs->str().c_str(), nullptr);
    if (!(std::abs(x - y) <= tolerance * std::max(std::abs(x), std::abs(y)))) return false;
  }
  return true;
}

// Returns true if the rank itself wrote the line, in a log line of Tutti or after a label of `tutti
// run`. A rank's own messages do not count as naming it.
bool is_said_by(int rank, std::string_view line) {
  const auto has = [&](const std::string& words) { return line.find(words) != line.npos; };
  return line.starts_with(cat("[", rank, "] ")) || has(cat("tutti [rank ", rank, "] ")) ||
         has(cat("communicator aborted on rank ", rank, " ("));
}

// Returns true if an error names the rank, followed by its host or address. Another rank must have
// written the message, unless the message names two ranks, as an unexpected message does. A
// launcher's line that a rank exited with a code does not count, because the launcher reports
// whichever rank exits first; peers that needed the rank add that it did not leave the job.
bool is_named(int rank, const Outcome& outcome) {
  const std::regex name(
      cat(R"(\brank )", rank,
          R"(( \([^)]*\)(?! ended with exit code \d+\b(?! without leaving))| at \S+:\d+))"));
  const std::regex other(cat(R"(\brank (?!)", rank, R"(\b)\d+ \([^)]*\))"));
  const auto names_it = [&](const std::string& line) {
    return std::regex_search(line, name) &&
           (!is_said_by(rank, line) || std::regex_search(line, other));
  };
  return std::ranges::any_of(split(outcome.out, '\n'), names_it) ||
         std::ranges::any_of(split(outcome.err, '\n'), names_it);
}

// Returns true if an error must name the rank. An abort of a communicator that is not used
// afterwards needs no error.
bool wants_name(const Fault& fault, const Outcome& outcome) {
  return has_victim(fault) && (fault.kind != Kind::abort || outcome.code != 0);
}

std::vector<std::string> not_named(const Outcome& outcome) {
  std::set<std::string> missing;
  for (const Fault& fault : outcome.struck) {
    if (wants_name(fault, outcome) && !is_named(fault.rank, outcome)) {
      missing.insert(cat("rank ", fault.rank));
    }
  }
  return {missing.begin(), missing.end()};
}

bool anybody_to_name(const Outcome& outcome) {
  const auto is_launcher = [](const Fault& fault) { return fault.rank == kLauncher; };
  const auto wants = [&](const Fault& fault) { return wants_name(fault, outcome); };
  return std::ranges::any_of(outcome.struck, wants) &&
         std::ranges::none_of(outcome.struck, is_launcher);
}

bool must_survive(const Outcome& outcome, size_t ranks, const Demands& demands) {
  std::set<int> dead;
  for (const Fault& fault : outcome.struck) {
    if (fault.kind == Kind::kill) dead.insert(fault.rank);
  }
  return dead.size() < ranks &&
         std::ranges::all_of(outcome.struck, demands.survives ? is_survivable : is_harmless);
}

}  // namespace

std::vector<std::string> matches(const std::string& expression, const std::string& text) {
  try {
    const std::regex regex(expression);
    std::vector<std::string> found;
    const std::sregex_iterator end;
    for (std::sregex_iterator it(text.begin(), text.end(), regex); it != end; ++it) {
      found.push_back(it->str());
    }
    return found;
  } catch (const std::regex_error& error) {
    throw Error(ErrorCode::invalid_argument,
                cat("'", expression, "' is not a regular expression: ", error.what()),
                {.where = "--same-output", .remedy = "test the expression with grep -E"});
  }
}

Verdict judge(const Plan& plan, const Outcome& outcome, const Outcome& undisturbed,
              const Demands& demands) {
  Verdict verdict;
  const auto complain = [&](const auto&... parts) { verdict.problems.push_back(cat(parts...)); };
  verdict.missed = outcome.struck.empty() && !plan.faults.empty();
  verdict.hung = outcome.hung;
  verdict.survived = !outcome.hung && outcome.code == 0;
  verdict.leaked = !outcome.left.empty();
  if (verdict.hung) complain("hung for ", outcome.seconds_after, " s after the last fault");
  if (!verdict.hung && !verdict.survived && must_survive(outcome, undisturbed.ranks, demands)) {
    complain("did not survive: exit code ", outcome.code);
  }
  for (const std::string& what : outcome.left) complain("left behind: ", what);
  if (!verdict.hung && anybody_to_name(outcome)) {
    const std::vector<std::string> missing = not_named(outcome);
    verdict.named = missing.empty();
    for (const std::string& name : missing) complain(name, " was not named");
  }
  if (!demands.same_output.empty() && verdict.survived) {
    const auto all = matches(demands.same_output, outcome.out);
    const auto all_wanted = matches(demands.same_output, undisturbed.out);
    const std::string got = all.empty() ? "nothing" : all.back();
    const std::string wanted = all_wanted.empty() ? "nothing" : all_wanted.back();
    verdict.wrong = !alike(got, wanted, demands.tolerance);
    if (verdict.wrong) complain("wrong: '", got, "' instead of '", wanted, "'");
    if (has_fault(plan, Kind::drop) && all.size() > all_wanted.size()) {
      verdict.wrong = true;
      complain("'", got, "' occurs ", all.size(), " times instead of ", all_wanted.size(),
               ": both sides of a partition continued");
    }
  }
  return verdict;
}

}  // namespace tutti::tool::chaos
