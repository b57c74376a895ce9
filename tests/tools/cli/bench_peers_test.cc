// Tests `tutti bench --peers` and `--plot`: other libraries, if installed, timed in turn with
// Tutti.
#include <string>
#include <vector>

#include "base/path.h"
#include "base/text.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

const Process::Environment kNothingOnPath = {{"PATH", "/nonexistent"}};

class BenchPeers : public Cli {
 protected:
  // Times one size with a few calls.
  Result bench(const std::string& collective, int ranks, Words more,
               Process::Environment environment = {}) const {
    Words arguments = {"bench", collective, "-n", cat(ranks), "--min",      "4K",           "--max",
                       "4K",    "--rounds", "2",  "--json",   path("json"), "--iterations", "3"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, std::move(environment));
  }

  // Returns the results for that single size. Fails the test if the command fails.
  Json measure(const std::string& collective, int ranks, const Words& more,
               const Process::Environment& environment = {}) const {
    const Result result = bench(collective, ranks, more, environment);
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    return Json::parse(read(path("json")))["results"][0];
  }

  // Returns why the peer cannot be timed; empty if it can.
  std::string why_not(const std::string& peer) const {
    const Result result = bench("all_reduce", 1, {"--peers", peer});
    const bool absent = result.err.find("was not installed when") != std::string::npos;
    return absent ? result.err : "";
  }

  static void expect_times(const Json& peer) {
    ASSERT_TRUE(peer.contains("time_us")) << peer;
    EXPECT_GT(peer["time_us"], 0);
    EXPECT_GT(peer["ratio"], 0);
  }
};

class EachPeer : public BenchPeers, public ::testing::WithParamInterface<std::string> {};

TEST_P(EachPeer, PeerIsTimedInTurn) {
  const std::string& peer = GetParam();
  if (const std::string reason = why_not(peer); !reason.empty()) GTEST_SKIP() << reason;
  for (const std::string collective : {"all_reduce", "all_to_all"}) {
    SCOPED_TRACE(collective);
    const Json result = measure(collective, 2, {"--peers", peer});
    EXPECT_EQ(result["wrong"], 0);
    EXPECT_EQ(result["peers"].size(), 1u);
    expect_times(result["peers"][peer]);
  }
}

TEST_P(EachPeer, PeerHasEveryCollectiveOrReportsOtherwise) {
  const std::string& peer = GetParam();
  if (const std::string reason = why_not(peer); !reason.empty()) GTEST_SKIP() << reason;
  for (const std::string collective : {"all_gather", "reduce_scatter", "broadcast", "reduce",
                                       "gather", "scatter", "scan", "exscan", "barrier"}) {
    SCOPED_TRACE(collective);
    const Json result = measure(collective, 3, {"--peers", peer})["peers"][peer];
    if (peer == "gloo" && collective.ends_with("scan")) {
      EXPECT_TRUE(result["time_us"].is_null() && result["ratio"].is_null()) << result;
      const Result shown = bench(collective, 3, {"--peers", peer});
      EXPECT_THAT(shown.out, HasSubstr("-       -\n"));
      EXPECT_THAT(shown.out, Not(HasSubstr("time over"))) << "there is none";
    } else {
      expect_times(result);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cli, EachPeer, ::testing::Values("openmpi", "mpich", "gloo", "floor"),
                         [](const auto& peer) { return peer.param; });

TEST_F(BenchPeers, MissingPeerErrorNamesThePackages) {
  for (const std::string peer : {"openmpi", "mpich"}) {
    const Result result = bench("all_reduce", 2, {"--peers", peer}, kNothingOnPath);
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, HasSubstr("apt-get install "));
    EXPECT_THAT(result.err, HasSubstr(peer));
  }
}

TEST_F(BenchPeers, AllSelectsTheInstalledPeers) {
  const Json peers = measure("all_reduce", 2, {"--peers", "all,floor"}, kNothingOnPath)["peers"];
  expect_times(peers["floor"]);
  EXPECT_FALSE(peers.contains("openmpi") || peers.contains("mpich")) << peers;
}

TEST_F(BenchPeers, TheSummaryComparesWithTheBestOfSeveralMpis) {
  const Result one = bench("all_reduce", 2, {"--peers", "floor"});
  EXPECT_THAT(one.out, HasSubstr("# time over floor's: geometric mean "));
  EXPECT_THAT(one.out, Not(HasSubstr("best of")));
  for (const std::string peer : {"openmpi", "mpich"}) {
    if (const std::string reason = why_not(peer); !reason.empty()) GTEST_SKIP() << reason;
  }
  const Result both = bench("all_reduce", 2, {"--peers", "openmpi,floor,mpich"});
  EXPECT_THAT(both.out, HasSubstr("# time over the best of openmpi, mpich: geometric mean "));
}

TEST_F(BenchPeers, EveryAlgorithmIsCompared) {
  const std::string csv = path("csv");
  measure("all_gather", 2, {"--peers", "floor", "--algorithm", "all", "--csv", csv});
  const Json results = Json::parse(read(path("json")))["results"];
  EXPECT_GT(results.size(), 1u);
  for (const Json& result : results) expect_times(result["peers"]["floor"]);
  EXPECT_THAT(read(csv), HasSubstr(",floor_us,floor_ratio,note\n"));
}

TEST_F(BenchPeers, FileNameSelectsTheFormatOfThePlot) {
  if (find_program("gnuplot").empty()) GTEST_SKIP() << "gnuplot is not installed";
  for (const std::string name : {"it's.svg", "plot.png"}) {
    measure("all_reduce", 2, {"--peers", "floor", "--plot", path(name)});
    const std::string picture = read(path(name));
    EXPECT_THAT(picture, StartsWith(name.ends_with("svg") ? "<?xml" : "\x89PNG\r\n")) << name;
    if (!name.ends_with("svg")) continue;
    for (const char* text : {"<svg", "</svg>", "all_reduce, 2 ranks", "Tutti", "the floor"}) {
      EXPECT_THAT(picture, HasSubstr(text));
    }
  }
}

TEST_F(BenchPeers, APlotNeedsGnuplot) {
  const Result result = bench("all_reduce", 2, {"--plot", path("plot.svg")}, kNothingOnPath);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, HasSubstr("apt-get install gnuplot-nox"));
}

}  // namespace
}  // namespace tutti::tool
