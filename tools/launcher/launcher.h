// Starts the ranks of a job on this host or on several and supervises them to the end.
//
// Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT (as
// torchrun sets them), TUTTI_TOKEN, TUTTI_LAUNCHER_FD and TUTTI_DOMAIN. Rank 0 also gets
// TUTTI_LISTEN_FD.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/launcher/hosts.h"

namespace tutti::tool {

struct LaunchOptions {
  int ranks = 1;            // number of ranks, without spares
  int spares = 0;           // number of additional ranks, which wait until others fail
  std::vector<Host> hosts;  // empty: this host
  MapBy map = MapBy::slot;
  std::vector<std::string> command;  // program and arguments
  // True: prefix each output line with "[rank] " and collapse identical lines of several ranks into
  // one. False: pass output through (for programs in which only rank 0 prints).
  bool prefix_lines = true;
  // The job continues after failures while at least `min_ranks` ranks survive, spares included.
  // Nothing: `ranks` if there are spares; otherwise no failure is tolerated.
  std::optional<int> min_ranks;
  // Maximum number of restarts of a failed job. A job that a signal stopped is not restarted.
  // TORCHELASTIC_RESTART_COUNT contains the number of restarts so far, as with torchrun.
  int restarts = 0;

  int processes() const { return ranks + spares; }
};

// Runs the job. Returns 0, or the exit code of the first failure that was not tolerated (128 + N if
// signal N killed a rank or stopped the job). If all failures were tolerated until no active rank
// was left, returns the exit code of the last one. Returns 1 if the ranks' output was lost.
int launch(const LaunchOptions& options);

// Returns true in a process that a launcher started as a rank of a job. Such a process must join
// that job and start no ranks. Throws Error(bootstrap) if its environment is incomplete.
bool is_launched();

}  // namespace tutti::tool
