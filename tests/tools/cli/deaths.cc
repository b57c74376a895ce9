#include "tests/tools/cli/deaths.h"

#include <algorithm>
#include <csignal>
#include <vector>

#include "base/text.h"

namespace tutti::tool {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Words Deaths::endless_bench(int ranks, const std::string& transport, const std::string& bytes) {
  return {"bench", "all_reduce", "-n",    cat(ranks), "--transport",  transport,
          "--min", bytes,        "--max", bytes,      "--iterations", "1000000"};
}

Words Deaths::said_of(const Result& result, pid_t pid) {
  Words lines;
  for (const std::string& line : split(result.err, '\n')) {
    const bool own = line.starts_with("tutti: ");
    if (own && line.find(cat(", pid ", pid, ")")) != line.npos) lines.push_back(line);
  }
  return lines;
}

void Deaths::expect_a_clear_end(Process& job, int ranks, int rank) const {
  const pid_t pid = process_of_rank(rank);
  ASSERT_GT(pid, 0);
  std::vector<Watched> others;
  for (int other = 0; other < ranks; ++other) others.emplace_back(process_of_rank(other));
  ::kill(pid, SIGKILL);
  const Result result = job.finish(kEndsWithin);
  EXPECT_EQ(result.code, 128 + SIGKILL);
  for (const Watched& other : others) EXPECT_FALSE(other.alive());
  // The message may also mention memory if a concurrent test ran out of it.
  const std::string last =
      result.err.substr(std::min(result.err.rfind("tutti run: "), result.err.size()));
  EXPECT_THAT(last, StartsWith(cat("tutti run: rank ", rank, " ("))) << result.err;
  EXPECT_THAT(last, HasSubstr(cat(", pid ", pid, ") was killed by signal 9 (Killed)")));
  // Every survivor reports the death as well.
  size_t said = 0;
  const std::string own = cat("tutti: rank ", rank, " (");
  for (const std::string& line : split(result.err, '\n')) {
    if (!line.starts_with(own)) continue;
    // A rank that has not yet received the rank table has no host names, so only the pid is
    // checked.
    EXPECT_THAT(line, HasSubstr(cat("pid ", pid, ") was killed by signal 9 (Killed)")));
    ++said;
  }
  EXPECT_EQ(said, static_cast<size_t>(ranks - 1)) << result.err;
}

}  // namespace tutti::tool
