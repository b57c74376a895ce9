// Fuzzes the environment of launchers and batch systems: lines of NAME=VALUE.
#include <map>

#include "base/text.h"
#include "tests/fuzz/target.h"
#include "tools/launcher/hosts.h"
#include "topology/domain.h"
#include "transport/bootstrap/discovery/job_sources.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  std::map<std::string, std::string> variables;
  for (const std::string& line : split(fuzz::text_of(data, size), '\n')) {
    const std::string name = line.substr(0, line.find('='));
    variables[name] = line.substr(std::min(name.size() + 1, line.size()));
  }
  const Environment environment = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end() || found->second.empty()) return std::nullopt;
    return found->second;
  };
  for (const JobSource& source : job_sources()) {
    fuzz::take("", [&] {
      const std::optional<FoundJob> job = source.read(environment);
      if (!job) return;
      fuzz::require(job->rank >= 0 && (job->size == 0 || job->rank < job->size), "a rank is one");
    });
  }
  // Host files named by variables are fuzzed elsewhere.
  variables.erase("LSB_DJOB_HOSTFILE");
  variables.erase("PBS_NODEFILE");
  fuzz::take("", [&] { tool::find_allocation(environment); });
  fuzz::take("", [&] {
    rack_of_slurm(variables["SLURM_TOPOLOGY_ADDR"], variables["SLURM_TOPOLOGY_ADDR_PATTERN"]);
  });
  return 0;
}
