// Tests ranks on an emulated host: their placement and their groups.
#include <algorithm>
#include <string>
#include <utility>

#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Two packages, each with one cache and two cores.
const Process::Environment kTwoCaches = {
    {"TUTTI_TOPOLOGY", "synthetic:package:2 l3:1 core:2 pu:1"}};

class Placement : public Cli {};

TEST_F(Placement, HierarchicalAlgorithmsRunInTheCachesOfOneHost) {
  for (const Words& call :
       {Words{"all_reduce", "hierarchical"}, Words{"all_reduce", "hierarchical(ring,ring,ring)"},
        Words{"all_gather", "hierarchical"}, Words{"reduce_scatter", "hierarchical"},
        Words{"broadcast", "hierarchical"}, Words{"reduce", "hierarchical"},
        Words{"all_to_all", "hierarchical"}, Words{"all_to_all", "hierarchical_leaders"}}) {
    const std::string file = path("result.json");
    const Words words = {"bench",        call[0], "-n",     "4",     "--algorithm",
                         call[1],        "--min", "1K",     "--max", "256K",
                         "--iterations", "3",     "--json", file};
    const Result result = run(words, kTwoCaches);
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_THAT(result.err, IsQuiet());
    const Json document = Json::parse(read(file));
    EXPECT_GT(document["results"].size(), 2u);
    for (const Json& row : document["results"]) {
      EXPECT_EQ(row["wrong"], 0) << row;
      EXPECT_EQ(row["algorithm"], call[1]);
    }
  }
}

TEST_F(Placement, OtherAlgorithmsNeedNoGroups) {
  const Result result = run({"bench", "all_reduce", "-n", "4", "--max", "4K", "--algorithm", "all",
                             "--rounds", "1", "--iterations", "2"},
                            kTwoCaches);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr(" hierarchical "), HasSubstr(" ring ")));
}

TEST_F(Placement, FollowsTheLauncherNotTheRank) {
  // `tutti run` places the ranks. On two caches, three or four ranks form groups; two ranks do not.
  for (const auto& [ranks, code] : {std::pair("4", 0), std::pair("3", 0), std::pair("2", 1)}) {
    const Result result = run({"run", "-n", ranks, "--no-prefix", "--", tutti(), "bench",
                               "all_reduce", "--algorithm", "hierarchical", "--max", "1K"},
                              kTwoCaches);
    EXPECT_EQ(result.code, code) << result.out << result.err;
  }
}

TEST_F(Placement, InfoShowsThePlacement) {
  const Result four = run({"info", "-n", "4"}, kTwoCaches);
  EXPECT_EQ(four.code, 0) << four.err;
  EXPECT_THAT(four.out,
              AllOf(HasSubstr("0,1  NUMA node 0, last-level cache 0\n"),
                    HasSubstr("2,3  NUMA node 0, last-level cache 1\n"),
                    HasSubstr("in groups of 2,"), HasSubstr("2 x 16 MiB, each shared by 2 cores")));
  const Result five = run({"info", "-n", "5"}, kTwoCaches);
  EXPECT_THAT(five.out, AllOf(HasSubstr("0-4  anywhere\n"), HasSubstr("in one group,")));

  const Json document = Json::parse(run({"info", "-n", "2", "--json", "-"}, kTwoCaches).out);
  const Json& ranks = document["ranks"];
  EXPECT_EQ(ranks["group"], 2);
  EXPECT_EQ(ranks["places"][1]["cache"], 1);
  EXPECT_EQ(ranks["places"][1]["bound_to"], Json::array()) << "that is another host";
}

TEST_F(Placement, ExplainUsesThePlacement) {
  const Words words = {"explain", "all_reduce", "-n", "4", "--bytes", "1M"};
  EXPECT_THAT(run(words, kTwoCaches).out,
              AllOf(HasSubstr("in groups of 2"), Not(HasSubstr("several hosts"))));
  const auto with_ranks = [&](const std::string& ranks) {
    Words other = words;
    other[3] = ranks;
    return run(other, kTwoCaches).out;
  };
  EXPECT_THAT(with_ranks("3"),
              AllOf(HasSubstr("in groups of 1, 2"), ContainsRegex("hierarchical .* us  = ")));
  EXPECT_THAT(with_ranks("2"), AllOf(HasSubstr("several hosts"), Not(HasSubstr("in groups of"))));
}

TEST_F(Placement, InvalidTopologyIsAnError) {
  for (const std::string wrong : {"synthetic:package:two", "/nonexistent/host.xml"}) {
    for (const Words& words : {Words{"info"}, Words{"run", "-n", "2", "--", "true"},
                               Words{"bench", "barrier", "-n", "2"}}) {
      const Result result = run(words, {{"TUTTI_TOPOLOGY", wrong}});
      EXPECT_EQ(result.code, 1) << words[0];
      EXPECT_THAT(result.err, HasSubstr(wrong.substr(wrong.find(':') + 1)));
      EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    }
  }
}

}  // namespace
}  // namespace tutti::tool
