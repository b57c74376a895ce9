// Runs jobs until one of their ranks is terminated, and checks how the other ranks end.
#pragma once

#include <sys/types.h>

#include <string>

#include "tests/tools/cli/cli.h"

namespace tutti::tool {

class Deaths : public Cli {
 protected:
  // Returns the arguments of a `tutti bench` that runs for minutes unless terminated.
  static Words endless_bench(int ranks, const std::string& transport,
                             const std::string& bytes = "1M");
  // Returns the lines that ranks, not the launcher, wrote to standard error and that name `pid`.
  static Words said_of(const Result& result, pid_t pid);
  // Kills `rank` of a running job of `ranks` ranks and checks how the others end.
  void expect_a_clear_end(Process& job, int ranks, int rank) const;
};

}  // namespace tutti::tool
