// tutti run: starts the ranks of a job.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"
#include "tools/launcher/hosts.h"
#include "tools/launcher/launcher.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/host_options.h"

namespace tutti::tool {

namespace {

struct RunCommandOptions {
  int ranks = 0;  // 0: number of cores
  HostOptions places;
  std::string map_by = "slot";
  bool no_prefix = false;
  std::optional<int> min_ranks;
  int restarts = 0;
  int spares = 0;
  std::vector<std::string> settings;
  std::vector<std::string> command;
};

// Sets variables for this process and for the ranks, which inherit its environment.
void apply_settings(const std::vector<std::string>& assignments) {
  for (const std::string& assignment : assignments) {
    const size_t equals = assignment.find('=');
    if (equals == std::string::npos) {
      throw Error(ErrorCode::invalid_argument, cat("--set ", assignment, " has no value"),
                  {.remedy = "write --set TUTTI_TRANSPORT=tcp"});
    }
    const std::string name = assignment.substr(0, equals);
    const std::string value = assignment.substr(equals + 1);
    settings().set(name, value);
    ::setenv(name.c_str(), value.c_str(), 1);
  }
}

int run(const RunCommandOptions& options) {
  apply_settings(options.settings);
  LaunchOptions launch_options{.ranks = options.ranks,
                               .spares = options.spares,
                               .hosts = find_hosts(options.places),
                               .map = options.map_by == "node" ? MapBy::node : MapBy::slot,
                               .command = options.command,
                               .prefix_lines = !options.no_prefix,
                               .min_ranks = options.min_ranks,
                               .restarts = options.restarts};
  launch_options.ranks = ranks_of_job(options.ranks, launch_options.hosts);
  check_min_ranks(options.min_ranks, launch_options.ranks);
  if (options.spares > 0) apply_settings({cat("TUTTI_SPARES=", options.spares)});
  return launch_job(launch_options);
}

}  // namespace

void add_run(CommandLine& line) {
  const auto options = std::make_shared<RunCommandOptions>();
  Command run_command =
      line.add("run", "start the ranks of a job on this host or on several hosts");
  run_command
      .add_option("-n,--ranks", options->ranks,
                  "total number of ranks (default: the total of all hosts' slots; if no slots are "
                  "given, the number of hosts times the number of cores that this process may use "
                  "here)")
      .between(1, 1 << 20);
  add_host_options(run_command, options->places);
  run_command
      .add_option("--map-by", options->map_by,
                  "rank placement. slot: consecutive ranks fill one host after the other; node: "
                  "ranks are dealt to the hosts round-robin")
      .one_of({"slot", "node"})
      .show_default();
  run_command.add_flag("--no-prefix", options->no_prefix, "do not prefix output lines with [rank]");
  run_command
      .add_option("--min-ranks", options->min_ranks,
                  "continue after failures of ranks or hosts while at least N ranks survive; the "
                  "program must then call tutti_shrink() (default: a failure ends the job)")
      .type_name("N")
      .between(1, 1 << 20);
  run_command
      .add_option("--spares", options->spares,
                  "number of additional ranks, which wait in tutti_init() until tutti_grow() adds "
                  "them to a communicator (default: 0)")
      .between(0, 1 << 20);
  run_command
      .add_option("--restarts", options->restarts,
                  "restart a failed job at most N times (default: 0)")
      .type_name("N")
      .between(0, 1 << 20);
  run_command
      .add_option("--set", options->settings, "environment variable for the job; may be repeated")
      .type_name("NAME=VALUE")
      .one_each_time();
  run_command.add_option("command", options->command, "program and its arguments, after --")
      .required()
      .type_name("PROGRAM ARGS...");
  // In `tutti run -n 2 program --flag`, options after the program are the program's.
  run_command.positionals_at_end();
  run_command.footer(
      "Examples:\n"
      "  tutti run -n 4 -- ./program --its-own-option\n"
      "  tutti run -n 8 --hosts node1,node2 -- ./program\n"
      "  tutti run --hosts node1:4,node2:2 --map-by node -- ./program\n"
      "  tutti run --hostfile hosts -- ./program\n"
      "  salloc -N 2 --ntasks-per-node=4 tutti run -- ./program      # or in an sbatch script\n"
      "  tutti run -n 2 --set TUTTI_TRANSPORT=tcp -- tutti bench all_reduce\n"
      "The first rank that fails ends the job. Its error is printed last, and its exit code is "
      "returned\n"
      "(128 + N for signal N). With --min-ranks or --spares a job succeeds if active ranks exit "
      "with 0\n"
      "after the last failure, or if more of them do so shortly before it than fail in it.\n"
      "Signals are forwarded to the ranks; a second Ctrl-C kills them. Ctrl-Z stops them until the "
      "job\n"
      "is continued; after a stop longer than TUTTI_TIMEOUT they may time out.\n"
      "Standard input of all ranks is empty (/dev/null).");
  run_command.runs([options] { return run(*options); });
}

}  // namespace tutti::tool
