// Tests process limits, out-of-range times and endless files: each is a clear error or no limit.
#include <string>

#include "base/text.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Limits : public Cli {
 protected:
  // Runs the program under a shell limit such as "-s 64".
  Result run_under(const std::string& limit, const std::string& arguments) const {
    return start_program(
               {"sh", "-c", cat("ulimit ", limit, " && exec '", tutti(), "' ", arguments)})
        .finish();
  }
};

// The first of several ranks waits for its children in the tree. A single rank waits for nobody.
TEST_F(Limits, InitTimeoutMayBeInfinite) {
  for (const std::string forever : {"inf", "1e10", "1e300"}) {
    const Result result =
        run({"bench", "all_reduce", "-n", "3", "--max", "1K"}, {{"TUTTI_INIT_TIMEOUT", forever}});
    EXPECT_EQ(result.code, 0) << forever << ": " << result.err;
  }
}

TEST_F(Limits, ASmallStackIsNamed) {
  const Result result = run_under("-s 64", "bench all_reduce -n 2 --max 1K");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("the stack of this process is limited to 64 KiB"),
                    HasSubstr("cause: "), HasSubstr("remedy: "), HasSubstr("ulimit -s 8192")));
  EXPECT_EQ(run_under("-s 128", "bench all_reduce -n 2 --max 1K").code, 0);
}

TEST_F(Limits, FileSizeLimitIsNamed) {
  const Result result = run_under("-f 100", "bench all_reduce -n 2 --max 1K");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("are limited to "), HasSubstr("ulimit -f"),
                                HasSubstr("remedy: raise the limit")));
}

// If the launcher's parent ignores SIGCHLD, the launcher and its ranks inherit that.
TEST_F(Limits, IgnoredSigchldDoesNotMatter) {
  for (const std::string code : {"0", "3"}) {
    const Result result = start_program({"env", "--ignore-signal=CHLD", tutti(), "run", "-n", "2",
                                         "--", "sh", "-c", cat("exit ", code)})
                              .finish();
    EXPECT_EQ(cat(result.code), code) << result.err;
  }
}

TEST_F(Limits, ThreadsThatCannotBeStartedAreNamed) {
  const Result result = run_under(
      "-v 2000000", cat("train --ranks 1 --steps 1 --threads 1000 --data ", write_text()));
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("cannot start a thread for a rank's arithmetic"),
                                HasSubstr("remedy: "), HasSubstr("--threads")));
}

TEST_F(Limits, MissingMemoryIsNamed) {
  const std::string large = write("large", std::string(80 << 20, 'a'));
  for (const std::string& arguments :
       {cat("train --ranks 1 --threads 1 --steps 1 --data ", large),
        cat("train --ranks 1 --threads 1 --steps 1 --hidden 50000 --data ", write_text())}) {
    const Result result = run_under("-v 160000", arguments);
    EXPECT_EQ(result.code, 1) << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("cause: the address space of this process is limited to 156"),
                      HasSubstr("remedy: raise the limit"), HasSubstr("ulimit -v unlimited")));
  }
}

// Each kind of file has a size limit, which the error states.
TEST_F(Limits, EndlessFileIsRefused) {
  const std::string text = write_text();
  const auto refusal = [&](const Words& words) {
    const Result result = run(words);
    EXPECT_EQ(result.code, 1) << result.err;
    return result.err;
  };
  const auto too_large = [](const std::string& limit, const std::string& kind) {
    return HasSubstr(cat("/dev/zero exceeds the limit of ", limit, " for ", kind));
  };
  EXPECT_THAT(refusal({"train", "--config", "/dev/zero"}),
              too_large("16 MiB", "a run's configuration"));
  EXPECT_THAT(refusal({"chaos", "--plan", "/dev/zero", "true"}),
              too_large("64 MiB", "a fault plan"));
  EXPECT_THAT(refusal({"run", "-n", "1", "--hostfile", "/dev/zero", "true"}),
              too_large("16 MiB", "a list of hosts"));
  EXPECT_THAT(refusal({"train", "--data", "/dev/zero"}),
              AllOf(HasSubstr("neither a file nor a directory"), HasSubstr("remedy: ")));
}

TEST_F(Limits, InfoShowsTheFileLimits) {
  const Json told = Json::parse(run({"info", "--json", "-"}).out);
  ASSERT_FALSE(told["file_limits"].empty());
  for (const Json& limit : told["file_limits"]) EXPECT_GT(limit["bytes"].get<uint64_t>(), 0u);
  EXPECT_THAT(run({"info"}).out, HasSubstr("a run's configuration  16 MiB"));
}

}  // namespace
}  // namespace tutti::tool
