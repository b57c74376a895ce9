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

// Returns the named hosts or, if none are named, those that a batch system allocated, and then uses
// its remote shell. An empty result means this host. Throws Error(invalid_argument) for invalid
// options.
std::vector<Host> find_hosts(const HostOptions& options);

// Returns `asked` or, if that is 0, the slots of all hosts. Without slots, counts for each host the
// number of cores that this process may use.
int ranks_of_job(int asked, const std::vector<Host>& hosts);

}  // namespace tutti::tool
