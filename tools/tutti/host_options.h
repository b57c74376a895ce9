// The options by which `tutti run`, `doctor` and `tune` learn on which hosts a job runs.
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

// --hosts and --hostfile.
void add_host_options(Command& command, HostOptions& options);

// The hosts that are named, or else those that a batch system has given, whose remote shell is
// taken then; none: this one. Throws Error(invalid_argument).
std::vector<Host> find_hosts(const HostOptions& options);

// `asked`, or where that is 0 the slots of all hosts, or for each host as many as the cores that
// this process may use.
int ranks_of_job(int asked, const std::vector<Host>& hosts);

}  // namespace tutti::tool
