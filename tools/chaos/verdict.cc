#include "tools/chaos/verdict.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <regex>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace tutti::tool::chaos {

namespace {

const std::regex kNumber(R"([-+]?\d+(\.\d*)?([eE][-+]?\d+)?)");

// The same but for numbers, which may be a little apart.
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

// Without what ranks say of the faults that they make themselves.
std::string spoken(const Outcome& outcome) {
  std::string text = outcome.out;
  for (const std::string& line : split(outcome.err, '\n')) {
    if (line.find(" of TUTTI_FAULT strikes") == std::string::npos) text += line + '\n';
  }
  return text;
}

std::vector<std::string> not_named(const Outcome& outcome) {
  const std::string text = spoken(outcome);
  std::set<std::string> missing;
  for (const Fault& fault : outcome.struck) {
    const std::string name = cat("rank ", fault.rank);
    if (has_victim(fault) && !std::regex_search(text, std::regex(name + R"(\b)"))) {
      missing.insert(name);
    }
  }
  return {missing.begin(), missing.end()};
}

bool anybody_to_name(const Outcome& outcome) {
  const auto is_launcher = [](const Fault& fault) { return fault.rank == kLauncher; };
  return std::ranges::any_of(outcome.struck, has_victim) &&
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

std::optional<std::string> last_match(const std::string& expression, const std::string& text) {
  try {
    const std::regex regex(expression);
    std::optional<std::string> found;
    const std::sregex_iterator end;
    for (std::sregex_iterator it(text.begin(), text.end(), regex); it != end; ++it) {
      found = it->str();
    }
    return found;
  } catch (const std::regex_error& error) {
    throw Error(ErrorCode::invalid_argument,
                cat("'", expression, "' is no regular expression: ", error.what()));
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
    const std::string nothing = "nothing";
    const std::string got = last_match(demands.same_output, outcome.out).value_or(nothing);
    const std::string wanted = last_match(demands.same_output, undisturbed.out).value_or(nothing);
    verdict.wrong = !alike(got, wanted, demands.tolerance);
    if (verdict.wrong) complain("wrong: '", got, "' in the place of '", wanted, "'");
  }
  return verdict;
}

}  // namespace tutti::tool::chaos
