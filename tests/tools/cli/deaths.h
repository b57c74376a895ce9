// A job that runs until one of its ranks is ended, and how the others should end then.
#pragma once

#include <sys/types.h>

#include <string>

#include "tests/tools/cli/cli.h"

namespace tutti::tool {

class Deaths : public Cli {
 protected:
  // Runs for minutes unless somebody ends it.
  static Words endless_bench(int ranks, const std::string& transport,
                             const std::string& bytes = "1M");
  // Of what the ranks said themselves: the lines of those that name `pid`.
  static Words said_of(const Result& result, pid_t pid);
  // Kills `rank` of a job of `ranks` ranks that runs, and sees how the others end.
  void expect_a_clear_end(Process& job, int ranks, int rank) const;
};

}  // namespace tutti::tool
