// Options of `tutti run`, `doctor` and `tune` for the hosts of a job.
#pragma once

#include <string>
#include <vector>

#include "tools/launcher/hosts.h"
#include "training/setup/command_line.h"

namespace tutti::tool {

struct HostOptions {
  std::vector<std::string> hosts;
  std::string host_file;
};

// Adds --hosts and --hostfile.
void add_host_options(Command& command, HostOptions& options);

// Returns the named hosts. If none are named, returns the hosts that a batch system allocated, and
// sets TUTTI_RSH to the batch system's remote shell unless it is set. An empty result means this
// host. Throws Error(invalid_argument) for invalid options.
std::vector<Host> find_hosts(const HostOptions& options);

// Returns `asked` or, if that is 0, the total of all hosts' slots. If `hosts` is empty and a batch
// system has allocated this host only, returns the slots of that allocation. Otherwise returns the
// number of hosts (at least 1) times the number of cores that this process may use.
int ranks_of_job(int asked, const std::vector<Host>& hosts);

}  // namespace tutti::tool
