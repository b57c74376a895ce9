// Formats the doctor's report as text (a line for each check, then the findings with their
// remedies) or as JSON.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "tools/doctor/diagnose.h"
#include "tools/doctor/facts.h"

namespace tutti::tool {

// Everything that the doctor has found.
struct Examination {
  std::vector<HostFacts> hosts;
  TokenFacts token;  // token of the doctor's own process
  std::vector<Reach> reaches;
  std::optional<JobResult> job;  // result of the test job; nothing: it was not run
  std::vector<Finding> findings;

  bool ok() const;  // returns true if there is no error
};

struct Check {
  std::string name;
  std::string state;  // one of "ok", "warning", "error", "skipped"
  std::string detail;
};

std::vector<Check> checks_of(const Examination& examination);

void print(std::ostream& out, const Examination& examination);
Json to_json(const Examination& examination);

}  // namespace tutti::tool
