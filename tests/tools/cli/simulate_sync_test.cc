// Tests `tutti simulate train --sync`: its table, its JSON and its errors.
#include <string>
#include <vector>

#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SimulateSync : public Cli {};

TEST_F(SimulateSync, SimulatesSynchronizationMethods) {
  const std::string json = path("sync.json");
  const Result result =
      run({"simulate",         "train",
           "--topology",       "switch:4,bandwidth=10,latency=1us",
           "--sync",           "allreduce,ps,ssp:3,async:1,local:16,diloco:50,2,1,gossip:exp,sgp",
           "--updates",        "10",
           "--forward-us",     "100",
           "--backward-us",    "200",
           "--micro-batches",  "2",
           "--gradient-bytes", "8000",
           "--algorithm",      "ring",
           "--straggler",      "1:x4",
           "--json",           json});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, IsQuiet());
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("4 data-parallel ranks, 10 updates, 600 us a step, rank 1 "
                              "x4, all-reduce by ring"),
                    HasSubstr("diloco:50,2,1,0"), HasSubstr("slowest waits")));
  const Json object = Json::parse(read(json));
  const Json& results = object["results"];
  ASSERT_EQ(results.size(), 8u);
  EXPECT_EQ(object["sync"], "allreduce");
  EXPECT_EQ(object["updates"], 10);
  // The slow rank has its sum first, and begins its next step before the others have their sums.
  const double all_reduce = results[0]["time_us"].get<double>();
  EXPECT_GT(all_reduce, 10 * 4 * 600);
  EXPECT_LE(all_reduce, 10 * (4 * 600 + 2 * 3 * (2 + 2000 / 10e3)));
  EXPECT_NEAR(results[0]["slowest_waits"].get<double>(), 1 - 24000 / all_reduce, 1e-9);
  EXPECT_NEAR(results[0]["fastest_waits"].get<double>(), 1 - 6000 / all_reduce, 1e-9);
  EXPECT_NEAR(results[0]["bytes_sent"].get<double>(), 10 * 6 * 8000, 1e-6);
  EXPECT_EQ(results[1]["sync"], "ps");
  // A rank's link carries both its own gradients and the answers that it sends as a server.
  EXPECT_NEAR(results[1]["time_us"].get<double>(), 10 * (4 * 600 + 2 * 2 + 3 * 6000 / 10e3), 1e-6);
  EXPECT_NEAR(results[1]["updates_per_second"].get<double>(),
              10e6 / results[1]["time_us"].get<double>(), 1e-6);
  EXPECT_LT(results[3]["ratio_to_allreduce"].get<double>(), 0.6);
  ASSERT_EQ(results[3]["worker_steps"].size(), 3u);
  EXPECT_EQ(results[3]["worker_steps"][1], 3) << "of 30: a ninth";
  EXPECT_NEAR(results[4]["time_us"].get<double>(), 10 * 4 * 600, 1e-6) << "no average in 10";
}

TEST_F(SimulateSync, ReportsWrongSynchronizationMethods) {
  const auto error = [&](std::vector<std::string> more, const std::string& what = "train") {
    std::vector<std::string> words = {"simulate", what, "--topology", "switch:4"};
    if (what == "train") {
      words.insert(words.end(), {"--forward-us", "10", "--backward-us", "20"});
    }
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_NE(result.code, 0);
    return result.err;
  };
  EXPECT_THAT(error({"--sync", "ps"}), HasSubstr("train requires --gradient-bytes"));
  EXPECT_THAT(error({"--sync", "ps", "--pp", "2"}), HasSubstr("--sync excludes --pp"));
  EXPECT_THAT(error({"--sync", "ps", "--zero", "1"}), HasSubstr("--sync excludes --zero"));
  EXPECT_THAT(error({"--updates", "3"}), HasSubstr("--updates has no effect without --sync"));
  EXPECT_THAT(error({"--straggler", "1:x4"}), HasSubstr("--straggler RANK:xF"));
  EXPECT_THAT(error({"--straggler", "1:x4"}, "all_reduce"), HasSubstr("--straggler RANK:xF"));
  EXPECT_THAT(error({"--sync", "ps"}, "all_reduce"),
              HasSubstr("--sync is an option of `tutti simulate train`"));
  const auto of_way = [&](const std::string& way, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--sync", way, "--gradient-bytes", "1M"});
    return error(more);
  };
  EXPECT_THAT(of_way("allreduce,sometimes"), HasSubstr("\"sometimes\""));
  EXPECT_THAT(of_way(""), HasSubstr("--sync \"\""));
  EXPECT_THAT(of_way("ps:4"), HasSubstr("leaves no rank that computes"));
  EXPECT_THAT(of_way("ps", {"--straggler", "4:x4"}), HasSubstr("unknown rank 4"));
  EXPECT_THAT(of_way("ps", {"--straggler", "1:x0"}), HasSubstr("1:x0"));
  EXPECT_THAT(of_way("ps", {"--forward-us", "1,2"}), HasSubstr("each rank computes the whole"));
}

}  // namespace
}  // namespace tutti::tool
