// A job that runs until one of its ranks is terminated, and the expected end of the other ranks.
#pragma once

#include <sys/types.h>

#include <string>

#include "tests/tools/cli/cli.h"

namespace tutti::tool {

class Deaths : public Cli {
 protected:
  // Runs for minutes unless terminated.
  static Words endless_bench(int ranks, const std::string& transport,
                             const std::string& bytes = "1M");
  // Returns the ranks' own output lines that name `pid`.
  static Words said_of(const Result& result, pid_t pid);
  // Kills `rank` of a running job of `ranks` ranks and checks how the others end.
  void expect_a_clear_end(Process& job, int ranks, int rank) const;
};

}  // namespace tutti::tool
