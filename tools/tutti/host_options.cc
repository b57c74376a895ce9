#include "tools/tutti/host_options.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "base/error.h"
#include "base/settings.h"
#include "topology/host.h"

namespace tutti::tool {

void add_host_options(Command& command, HostOptions& options) {
  command
      .add_option(
          "--hosts", options.hosts,
          "hosts to run on, which are reached through TUTTI_RSH. N is the host's number of "
          "slots (maximum number of ranks); without slots the ranks are divided equally "
          "over the hosts (default: the hosts of the current Slurm, LSF or PBS job, or this "
          "host)")
      .separated_by_commas()
      .type_name("A[:N],B[:N],...");
  command
      .add_option("--hostfile", options.host_file,
                  "file that lists the hosts, one per line: `host`, `host slots=N` or `host:N`")
      .type_name("FILE");
}

std::vector<Host> find_hosts(const HostOptions& options) {
  if (!options.hosts.empty() && !options.host_file.empty()) {
    throw Error(ErrorCode::invalid_argument, "--hosts and --hostfile exclude each other",
                {.remedy = "remove one of them"});
  }
  if (!options.hosts.empty()) return parse_hosts(options.hosts);
  if (!options.host_file.empty()) return read_host_file(options.host_file);
  const std::optional<Allocation> allocation = find_allocation(own_environment);
  if (!allocation || allocation->only_here) return {};
  if (!allocation->remote_shell.empty() && settings().value("TUTTI_RSH").origin == "default") {
    settings().set("TUTTI_RSH", allocation->remote_shell, allocation->source);
    // Also set in the environment, for processes that start remote agents.
    ::setenv("TUTTI_RSH", allocation->remote_shell.c_str(), 1);
  }
  return allocation->hosts;
}

int ranks_of_job(int asked, const std::vector<Host>& hosts) {
  if (asked > 0) return asked;
  if (const int slots = total_slots(hosts); slots > 0) return slots;
  if (hosts.empty()) {
    const std::optional<Allocation> allocation = find_allocation(own_environment);
    if (allocation && allocation->only_here) return total_slots(allocation->hosts);
  }
  return std::max(1, this_host().allowed_cores()) * std::max(1, static_cast<int>(hosts.size()));
}

}  // namespace tutti::tool
