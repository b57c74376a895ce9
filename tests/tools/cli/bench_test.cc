// Tests `tutti bench`: its output, the correctness of all results, and the errors of wrong
// commands.
#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/reduce_op.h"
#include "base/text.h"
#include "tests/support/fabrics.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

constexpr const char* kCollectives[] = {
    "all_reduce",  "all_gather", "reduce_scatter", "broadcast",   "reduce",         "gather",
    "scatter",     "all_to_all", "scan",           "exscan",      "barrier",        "send_recv",
    "all_gatherv", "gatherv",    "scatterv",       "all_to_allv", "reduce_scatterv"};

std::vector<std::string> keys(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  return names;
}

class Bench : public Cli {
 protected:
  // Runs `tutti bench` and returns its --json output. Fails the test if the command fails.
  Json measure(Words arguments) const {
    const std::string file = path("result.json");
    arguments.insert(arguments.begin(), "bench");
    for (const char* word : {"--iterations", "2", "--json", file.c_str()}) {
      arguments.emplace_back(word);
    }
    const Result result = run(arguments);
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_THAT(result.err, IsQuiet()) << "a healthy run is quiet";
    Json document = Json::parse(read(file));
    std::filesystem::remove(file);
    return document;
  }

  static void expect_right(const Json& document, size_t sizes) {
    ASSERT_EQ(document["results"].size(), sizes);
    for (const Json& result : document["results"]) {
      EXPECT_EQ(result["wrong"], 0) << document;
      EXPECT_GT(result["time_us"], 0) << document;
    }
  }
};

TEST_F(Bench, RunsBesideBusyProcesses) {
  const Json document = measure({"all_reduce", "-n", "2", "--max", "8", "--load", "2"});
  EXPECT_EQ(document["load"], 2);
  expect_right(document, 1);
}

TEST_F(Bench, RunsWithinAQuotaOrReportsWhyItCannot) {
  const Result result = run({"bench", "all_reduce", "-n", "2", "--max", "8", "--quota", "1.5"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, ::testing::AnyOf(HasSubstr("# within the time of 1.5 processors\n"),
                                           HasSubstr("skipped: --quota: ")));
}

TEST_F(Bench, JsonHasItsFields) {
  const Json document = measure({"all_reduce", "-n", "2", "--min", "8", "--max", "8K", "--factor",
                                 "32", "--transport", "shm", "--algorithm", "ring"});
  EXPECT_THAT(keys(document), UnorderedElementsAre("collective", "dtype", "init", "instruction_set",
                                                   "op", "ranks", "results", "transport"));
  EXPECT_EQ(document["collective"], "all_reduce");
  EXPECT_EQ(document["ranks"], 2);
  EXPECT_EQ(document["dtype"], "f32");
  EXPECT_EQ(document["op"], "sum");
  EXPECT_EQ(document["transport"], "shm");
  expect_right(document, 3);
  uint64_t bytes = 8;
  for (const Json& result : document["results"]) {
    EXPECT_THAT(keys(result),
                UnorderedElementsAre("algbw_GBps", "algorithm", "busbw_GBps", "bytes", "count",
                                     "min_us", "p90_us", "time_us", "wrong"));
    EXPECT_EQ(result["bytes"], bytes);
    EXPECT_EQ(result["count"], bytes / 4);
    EXPECT_EQ(result["algorithm"], "ring");
    EXPECT_LE(result["min_us"], result["time_us"]);
    EXPECT_LE(result["time_us"], result["p90_us"]);
    const double algbw = result["algbw_GBps"];
    EXPECT_NEAR(algbw, static_cast<double>(bytes) / result["time_us"].get<double>() / 1000,
                algbw * 1e-6);
    EXPECT_NEAR(result["busbw_GBps"].get<double>(), algbw, algbw * 1e-6) << "2 (p-1) / p is 1";
    bytes *= 32;
  }
}

TEST_F(Bench, RootedCollectivesAreRightForEveryRoot) {
  for (const std::string collective :
       {"broadcast", "reduce", "gather", "scatter", "gatherv", "scatterv"}) {
    for (int root = 0; root < 3; ++root) {
      SCOPED_TRACE(cat(collective, ' ', root));
      const Json document = measure({collective, "-n", "3", "--root", cat(root), "--min", "64",
                                     "--max", "64K", "--factor", "1024"});
      EXPECT_EQ(document["root"], root);
      expect_right(document, 2);
    }
  }
  EXPECT_EQ(measure({"broadcast", "-n", "2", "--max", "8"})["root"], 0);
}

// Returns the names in `--algorithm list` of algorithms that support any number of ranks.
Words listed(const Result& list) {
  EXPECT_EQ(list.code, 0) << list.err;
  Words names;
  for (const std::string& line : split(list.out, '\n')) {
    if (line.ends_with("ranks: any")) names.push_back(line.substr(0, line.find(' ')));
  }
  return names;
}

TEST_F(Bench, EveryAlgorithmIsRightOnEveryTransportForAnyNumberOfRanks) {
  for (const std::string collective : kCollectives) {
    const Words algorithms = listed(run({"bench", collective, "--algorithm", "list"}));
    if (collective == "send_recv") continue;
    EXPECT_GE(algorithms.size(), collective == "all_reduce" ? 12u : 1u) << collective;
    // A few rank counts suffice here, where ranks are processes: the tests in tests/collectives
    // verify the programs for many more.
    const std::pair<std::string, std::vector<int>> some[] = {{"shm", {2, 5, 16}}, {"tcp", {3, 8}}};
    for (const auto& [transport, numbers] : some) {
      for (const int ranks : numbers) {
        SCOPED_TRACE(cat(collective, ' ', transport, ' ', ranks));
        const Json document =
            measure({collective, "-n", cat(ranks), "--algorithm", "all", "--rounds", "1",
                     "--transport", transport, "--min", "1K", "--max", "128K", "--factor", "128"});
        EXPECT_EQ(document["ranks"], ranks);
        EXPECT_EQ(document["transport"], transport);
        std::map<std::string, int> sizes;
        for (const Json& result : document["results"]) {
          EXPECT_EQ(result["wrong"], 0) << result;
          ++sizes[result["algorithm"]];
        }
        for (const std::string& algorithm : algorithms) {
          EXPECT_EQ(sizes[algorithm], collective == "barrier" ? 1 : 2) << algorithm;
        }
      }
    }
  }
}

TEST_F(Bench, AllMarksTheBestAndAutosChoice) {
  const Json document = measure({"all_reduce", "-n", "3", "--algorithm", "all", "--rounds", "2",
                                 "--min", "64", "--max", "64K", "--factor", "1024"});
  std::map<uint64_t, Words> best;
  std::map<uint64_t, Words> chosen;
  std::map<uint64_t, std::vector<double>> times;
  for (const Json& result : document["results"]) {
    times[result["bytes"]].push_back(result["time_us"]);
    if (result["best"]) best[result["bytes"]].push_back(result["algorithm"]);
    if (result["auto"]) chosen[result["bytes"]].push_back(result["algorithm"]);
  }
  ASSERT_EQ(times.size(), 2u);
  for (const auto& [bytes, in_order] : times) {
    EXPECT_TRUE(std::ranges::is_sorted(in_order)) << "the fastest first";
    EXPECT_EQ(best[bytes].size(), 1u);
    EXPECT_EQ(chosen[bytes].size(), 1u);
    const Json alone = measure({"all_reduce", "-n", "3", "--min", cat(bytes), "--max", cat(bytes)});
    EXPECT_EQ(alone["results"][0]["algorithm"], chosen[bytes].front());
  }
}

TEST_F(Bench, EveryCollectiveIsRight) {
  for (const std::string collective : kCollectives) {
    for (const std::string transport : {"shm", "tcp"}) {
      for (const int ranks : {1, 3, 4}) {
        SCOPED_TRACE(cat(collective, ' ', transport, ' ', ranks));
        const Json document = measure({collective, "-n", cat(ranks), "--transport", transport,
                                       "--max", "128K", "--factor", "128"});
        EXPECT_EQ(document["collective"], collective);
        expect_right(document, collective == "barrier" ? 1 : 3);
      }
    }
  }
}

TEST_F(Bench, BytesCountTheLargerBuffer) {
  struct Expected {
    const char* collective;
    uint64_t count;
    double bus;
  };
  for (const auto& [collective, count, bus] : {Expected{"all_gather", 300, 0.75},
                                               {"reduce_scatter", 300, 0.75},
                                               {"gather", 300, 0.75},
                                               {"scatterv", 300, 0.75},
                                               {"all_to_allv", 300, 0.75},
                                               {"all_reduce", 1200, 1.5},
                                               {"broadcast", 1200, 1},
                                               {"send_recv", 1200, 1}}) {
    const Json document = measure({collective, "-n", "4", "--min", "4800", "--max", "4800"});
    const Json& result = document["results"][0];
    EXPECT_EQ(result["bytes"], 4800) << collective;
    EXPECT_EQ(result["count"], count) << collective;
    const double algbw = result["algbw_GBps"];
    EXPECT_NEAR(result["busbw_GBps"].get<double>(), bus * algbw, 1e-6 * algbw) << collective;
  }
}

TEST_F(Bench, TheCanonicalDigestDependsOnTheInputsAndTheNumberOfRanksOnly) {
  for (const std::string dtype : {"f32", "bf16"}) {
    for (const int ranks : dtype == "f32" ? std::vector{2, 3, 16} : std::vector{5, 8}) {
      std::map<uint64_t, std::set<std::string>> digests;
      const auto collect = [&](const std::string& algorithm, const std::string& transport) {
        SCOPED_TRACE(cat(dtype, ' ', ranks, ' ', algorithm, ' ', transport));
        const Json document =
            measure({"all_reduce", "-n", cat(ranks), "--dtype", dtype, "--digest",
                     "--deterministic", "--algorithm", algorithm, "--transport", transport, "--min",
                     "1236", "--max", "1000000", "--factor", "611"});
        expect_right(document, 2);
        for (const Json& result : document["results"]) {
          const std::string digest = result["digest"];
          EXPECT_EQ(digest.size(), 64u);
          digests[result["bytes"]].insert(digest);
        }
      };
      for (const std::string transport : {"shm", "tcp"}) {
        for (const std::string algorithm :
             {"auto", "recursive_doubling", "two_shot", "naive", "auto"}) {
          collect(algorithm, transport);
        }
      }
      ASSERT_EQ(digests.size(), 2u);
      for (const auto& [bytes, found] : digests) EXPECT_EQ(found.size(), 1u) << dtype << ranks;
    }
  }
}

TEST_F(Bench, TheDigestShowsAnotherOrderOfSummation) {
  for (const std::string dtype : {"f32", "bf16"}) {
    std::set<std::string> digests;
    for (const std::string algorithm : {"naive", "ring", "double_binary_tree"}) {
      const Json document = measure({"all_reduce", "-n", "5", "--dtype", dtype, "--digest",
                                     "--algorithm", algorithm, "--min", "64K", "--max", "64K"});
      expect_right(document, 1);
      digests.insert(document["results"][0]["digest"]);
    }
    EXPECT_EQ(digests.size(), 3u) << dtype;
  }
}

TEST_F(Bench, EveryCollectiveHasADigest) {
  for (const std::string collective : kCollectives) {
    SCOPED_TRACE(collective);
    std::set<std::string> digests;
    for (const std::string& transport : testing::transports()) {
      const std::string file = path("digest.csv");
      const Result result =
          run({"bench", collective, "-n", "3", "--digest", "--transport", transport, "--min", "60K",
               "--max", "60K", "--iterations", "1", "--csv", file},
              {{"TUTTI_DETERMINISTIC", "1"}});
      EXPECT_EQ(result.code, 0) << result.err;
      const std::string line = split(read(file), '\n').at(1);
      digests.insert(line.substr(line.rfind(',') + 1));
      EXPECT_THAT(result.out, HasSubstr(*digests.begin())) << "the table has it";
    }
    EXPECT_EQ(digests.size(), 1u);
    EXPECT_EQ(digests.begin()->size(), 64u);
  }
}

TEST_F(Bench, ListShowsTheSupportedNumbersOfRanks) {
  const Result list = run({"bench", "all_reduce", "--algorithm", "list"});
  EXPECT_THAT(list.out, HasSubstr("recursive_doubling"));
  EXPECT_THAT(list.out, HasSubstr("canonical"));
  EXPECT_THAT(list.out, HasSubstr("Patarasuk"));
  EXPECT_THAT(list.out, HasSubstr("ranks: 1-2, 4, 6, 8, 10, 12, 14, 16, ...; it requires an even"));
  EXPECT_THAT(run({"bench", "gather", "--algorithm", "list"}).out, HasSubstr("binomial"));
  EXPECT_THAT(run({"bench", "gatherv", "--algorithm", "list"}).out, Not(HasSubstr("binomial")))
      << "it forwards blocks of unknown length";
}

constexpr const char* kBroadcast = R"(<algo name="b" ngpus="2" nchunksperloop="1" nchannels="1"
  coll="broadcast" inplace="1" outofplace="0">
  <gpu id="0" i_chunks="1" o_chunks="0" s_chunks="0">
    <tb id="0" send="1" recv="-1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1"
        hasdep="0"/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="1" o_chunks="0" s_chunks="0">
    <tb id="0" send="-1" recv="0" chan="0">
      <step s="0" type="r" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1"
        hasdep="0"/>
    </tb>
  </gpu>
</algo>
)";

TEST_F(Bench, RunsImportedAlgorithms) {
  const std::string file = path("sent.xml");
  std::ofstream(file) << kBroadcast;
  const Json document =
      measure({"broadcast", "-n", "2", "--algorithm", file, "--max", "64K", "--factor", "16"});
  expect_right(document, 4);
  EXPECT_EQ(document["results"][0]["algorithm"], "sent");
  const Result three = run({"bench", "broadcast", "-n", "3", "--algorithm", file});
  EXPECT_EQ(three.code, 1);
  EXPECT_THAT(three.err, HasSubstr("does not run on 3 ranks"));
  const Result other = run({"bench", "all_reduce", "-n", "2", "--algorithm", file});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("is an algorithm for broadcast, not for all_reduce"));
}

TEST_F(Bench, EveryOperatorIsRightOnEveryTypeThatHasIt) {
  for (const DType dtype : kAllDTypes) {
    const std::string bytes = cat(1003 * size_of(dtype));
    for (const ReduceOp op : kAllReduceOps) {
      if (!supports(op, dtype)) continue;
      SCOPED_TRACE(cat(name(dtype), ' ', name(op)));
      const Json document =
          measure({"all_reduce", "-n", "3", "--dtype", std::string(name(dtype)), "--op",
                   std::string(name(op)), "--min", bytes, "--max", bytes});
      EXPECT_EQ(document["dtype"], name(dtype));
      EXPECT_EQ(document["op"], name(op));
      expect_right(document, 1);
      EXPECT_EQ(document["results"][0]["count"], 1003);
    }
  }
}

TEST_F(Bench, CsvHasTheValuesOfJson) {
  const Json document = measure({"all_gather", "-n", "3", "--min", "1K", "--max", "64K", "--factor",
                                 "8", "--csv", path("result.csv")});
  const std::vector<std::string> lines = split(read(path("result.csv")), '\n');
  ASSERT_EQ(lines.size(), document["results"].size() + 1);
  EXPECT_EQ(lines[0], "bytes,count,algorithm,time_us,min_us,algbw_GBps,busbw_GBps,wrong");
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> cells = split(lines[i], ',');
    const Json& result = document["results"][i - 1];
    ASSERT_EQ(cells.size(), 8u);
    EXPECT_EQ(cells[0], result["bytes"].dump());
    EXPECT_EQ(cells[1], result["count"].dump());
    EXPECT_EQ(cells[2], result["algorithm"]);
    const double time = result["time_us"];
    EXPECT_NEAR(std::stod(cells[3]), time, time * 1e-4);
    EXPECT_EQ(cells[7], "0");
  }
}

TEST_F(Bench, InPlaceHasColumnsOfItsOwn) {
  for (const std::string collective :
       {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter",
        "scan", "all_gatherv", "reduce_scatterv"}) {
    const Result result = run({"bench", collective, "-n", "3", "--min", "24", "--max", "24K",
                               "--factor", "32", "--in-place", "--json", path("in_place.json")});
    EXPECT_EQ(result.code, 0) << collective << result.err;  // 1 where anything was wrong
    EXPECT_THAT(result.out, HasSubstr(" wrong  in-place us busbw GB/s\n"));
    const Json document = Json::parse(read(path("in_place.json")));
    for (const Json& row : document.at("results")) {
      EXPECT_GT(row.at("in_place").at("time_us").get<double>(), 0) << collective;
      EXPECT_EQ(row.at("wrong").get<int>(), 0) << collective;
    }
  }
  EXPECT_THAT(run({"bench", "all_to_all", "-n", "2", "--in-place"}).err,
              HasSubstr("all_to_all has no in-place form"));
}

TEST_F(Bench, TheTableHasARowForEachSize) {
  const Result result = run({"bench", "all_reduce", "-n", "2", "--max", "1K", "--factor", "2"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("busbw GB/s"));
  EXPECT_EQ(std::ranges::count(result.out, '\n'), 2 + 8 + 1) << result.out;
}

TEST_F(Bench, ManyMoreRanksThanCoresWork) {
  for (const std::string transport : {"shm", "tcp"}) {
    const Json document = measure(
        {"all_reduce", "-n", "16", "--max", "1M", "--factor", "2", "--transport", transport});
    expect_right(document, 18);
  }
}

}  // namespace
}  // namespace tutti::tool
