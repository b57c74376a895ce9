// Tests busy processes and processor quotas, which last as long as their object.
#include "bench/neighbours.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>

#include "base/control_groups.h"
#include "base/error.h"
#include "base/processors.h"
#include "base/text.h"

namespace tutti::bench {
namespace {

// Returns true if this process has a child process.
bool has_children() {
  siginfo_t info = {};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

TEST(BusyProcesses, EndWithTheObject) {
  EXPECT_FALSE(has_children());
  {
    const BusyProcesses two(2);
    EXPECT_TRUE(has_children());
  }
  EXPECT_FALSE(has_children());
  EXPECT_EQ(errno, ECHILD);
  const BusyProcesses none(0);
  EXPECT_FALSE(has_children());
}

TEST(ProcessorQuota, HoldsForThisProcess) {
  const std::string before = own_processors();
  {
    std::optional<ProcessorQuota> quota;
    try {
      quota.emplace(0.5);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::unsupported) << error.what();
      GTEST_SKIP() << error.what();
    }
    EXPECT_TRUE(own_processors().ends_with(" quota 0.5")) << own_processors();
    EXPECT_EQ(usable_processors(), 1);
  }
  EXPECT_EQ(own_processors(), before);
  for (const ControlGroup& group : control_groups("cpu")) {
    EXPECT_FALSE(std::filesystem::exists(group.path / cat("tutti-bench-", ::getpid())));
  }
}

}  // namespace
}  // namespace tutti::bench
