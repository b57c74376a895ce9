// Starts the ranks of a job, on this host or on several, and sees them through to the end.
//
// Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT (as
// torchrun sets them), TUTTI_TOKEN, TUTTI_LAUNCHER_FD, TUTTI_DOMAIN, and rank 0 TUTTI_LISTEN_FD.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/launcher/hosts.h"

namespace tutti::tool {

struct LaunchOptions {
  int ranks = 1;            // in all, but for the spares
  int spares = 0;           // more ranks, which wait until others fail
  std::vector<Host> hosts;  // empty: this host
  MapBy map = MapBy::slot;
  std::vector<std::string> command;  // program and arguments
  // How ranks' output is shown: with a "[rank] " before each line and identical lines of several
  // ranks collapsed into one, or as it comes (for programs of which only rank 0 talks).
  bool prefix_lines = true;
  // The job goes on when ranks fail, or hosts are lost, as long as so many are left, spares
  // included. Without it, where there are spares: as many as `ranks`.
  std::optional<int> min_ranks;
  // How often a job that has failed is started again, unless a signal has ended it. Its ranks see
  // how often in TORCHELASTIC_RESTART_COUNT, as torchrun's do.
  int restarts = 0;

  int processes() const { return ranks + spares; }
};

// Returns the exit code of the first rank that failed and was not done without (128 + N for signal
// N), or 0. Where all were done without until none that worked was left: of the last that failed.
int launch(const LaunchOptions& options);

// True in a process that is a rank of a job already, whatever launcher started it: it shall join
// that job, and start no ranks of its own. Throws Error(bootstrap) where it is told by halves.
bool is_launched();

}  // namespace tutti::tool
