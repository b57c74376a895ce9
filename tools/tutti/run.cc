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
  int ranks = 0;  // 0: as many as cores
  HostOptions places;
  std::string map_by = "slot";
  bool no_prefix = false;
  std::optional<int> min_ranks;
  int restarts = 0;
  int spares = 0;
  std::vector<std::string> settings;
  std::vector<std::string> command;
};

// For this process, and for the ranks that inherit its environment.
void apply_settings(const std::vector<std::string>& assignments) {
  for (const std::string& assignment : assignments) {
    const size_t equals = assignment.find('=');
    if (equals == std::string::npos) {
      throw Error(ErrorCode::invalid_argument, cat("--set ", assignment, " has no value"),
                  {.remedy = "write it as in --set TUTTI_TRANSPORT=tcp"});
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
  Command run_command = line.add("run", "Start the ranks of a job, here or on hosts");
  run_command
      .add_option("-n,--ranks", options->ranks,
                  "ranks in all (default: the slots of all hosts, or else for each host the cores "
                  "that this process may use)")
      .between(1, 1 << 20);
  add_host_options(run_command, options->places);
  run_command
      .add_option("--map-by", options->map_by,
                  "slot: a block of neighbouring ranks on each host; node: one rank a host in turn")
      .one_of({"slot", "node"})
      .show_default();
  run_command.add_flag("--no-prefix", options->no_prefix,
                       "show output as it comes, without [rank] before each line");
  run_command
      .add_option("--min-ranks", options->min_ranks,
                  "go on when ranks fail or hosts are lost, as long as so many ranks are left; "
                  "programs go on by tutti_shrink()")
      .between(1, 1 << 20);
  run_command
      .add_option("--spares", options->spares,
                  "more ranks, which wait in tutti_init() until others take them by tutti_grow()")
      .between(0, 1 << 20);
  run_command
      .add_option("--restarts", options->restarts,
                  "start a job that has failed again, so many times")
      .between(0, 1 << 20);
  run_command
      .add_option("--set", options->settings,
                  "a setting for the job, as if in the environment; may be repeated")
      .type_name("NAME=VALUE")
      .one_each_time();
  run_command.add_option("command", options->command, "program and arguments, behind --")
      .required()
      .type_name("PROGRAM ARGS...");
  // `tutti run -n 2 program --flag`: what follows the program is the program's.
  run_command.positionals_at_end();
  run_command.footer(
      "Examples:\n"
      "  tutti run -n 4 -- ./program --its-own-option\n"
      "  tutti run -n 8 --hosts node1,node2 -- ./program\n"
      "  tutti run --hosts node1:4,node2:2 --map-by node -- ./program\n"
      "  tutti run --hostfile hosts -- ./program\n"
      "  salloc -N 2 --ntasks-per-node=4 tutti run -- ./program      # or in an sbatch script\n"
      "  tutti run -n 2 --set TUTTI_TRANSPORT=tcp -- tutti bench all_reduce\n"
      "The first rank that fails ends the job: its error comes last, its exit code is returned\n"
      "(128 + N for signal N). With --min-ranks or --spares a job succeeds where ranks that have\n"
      "worked end with 0 after all failures, or more of them just before than fail then.\n"
      "Signals are forwarded to the ranks; a second Ctrl-C kills them. Ctrl-Z stops them until\n"
      "the job is continued; after more than TUTTI_TIMEOUT they may give up.\n"
      "Standard input is empty for all ranks (/dev/null).");
  run_command.runs([options] { return run(*options); });
}

}  // namespace tutti::tool
