// Tests `tutti simulate`: its table, its JSON and its errors.
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include "collectives/cost/cost_model.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Simulate : public Cli {};

TEST_F(Simulate, WritesTheTimeOfARing) {
  const std::string json = path("ring.json");
  const Result result =
      run({"simulate", "all_reduce", "--topology", "ring:16,bandwidth=25GB/s,latency=2us",
           "--ranks", "16", "--bytes", "16M", "--algorithm", "ring", "--json", json});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, IsQuiet());
  const Json object = Json::parse(read(json));
  const double bytes = 16 << 20;
  const double expected = 2 * (2 * 15 + bytes / 25e3 * 15 / 16);
  EXPECT_NEAR(object["time_us"].get<double>(), expected, 1e-9 * expected);
  EXPECT_NEAR(object["busbw_GBps"].get<double>(), bytes / expected * 1e-3 * 2 * 15 / 16, 1e-6);
  EXPECT_EQ(object["algorithm"], "ring");
  EXPECT_EQ(object["ranks"], 16);
  EXPECT_EQ(object["results"].size(), 1u);
}

TEST_F(Simulate, SelectsTheFastestAlgorithmForEachSize) {
  const std::string json = path("auto.json");
  const Result result = run(
      {"simulate", "all_reduce", "--topology", "switch:16", "--bytes", "8,256M", "--json", json});
  EXPECT_EQ(result.code, 0) << result.err;
  const Json object = Json::parse(read(json));
  ASSERT_EQ(object["results"].size(), 2u);
  EXPECT_EQ(object["algorithm"], object["results"][0]["algorithm"]);
  EXPECT_NE(object["results"][0]["algorithm"], object["results"][1]["algorithm"])
      << "few rounds for few bytes, few bytes a rank for many";
  const Result all = run(
      {"simulate", "all_reduce", "--topology", "switch:16", "--bytes", "8", "--algorithm", "all"});
  EXPECT_THAT(all.out, AllOf(HasSubstr(">"), HasSubstr("ring"), HasSubstr("double_binary_tree")));
}

// The numbers are those of `tutti explain --gpu`.
TEST_F(Simulate, SimulatesClassesOfGpus) {
  const std::map<std::string, double> busbw = {{"a100", 240}, {"h100", 370}, {"mi300x", 48}};
  for (const auto& [gpu, expected] : busbw) {
    const std::string json = path(gpu + ".json");
    const Result result = run({"simulate", "all_reduce", "-n", "8", "--gpu", gpu, "--bytes", "1G",
                               "--algorithm", "ring", "--json", json});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_NEAR(Json::parse(read(json))["busbw_GBps"].get<double>(), expected, 0.1 * expected)
        << gpu;
  }
  const std::string json = path("short.json");
  run({"simulate", "all_reduce", "-n", "8", "--gpu", "h100", "--bytes", "8", "--algorithm", "ring",
       "--json", json});
  const std::string explained =
      run({"explain", "all_reduce", "-n", "8", "--gpu", "h100", "--bytes", "8"}).out;
  const double time_us = Json::parse(read(json))["time_us"].get<double>();
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", time_us);
  const size_t ring = explained.find("ring  ");
  ASSERT_NE(ring, explained.npos);
  EXPECT_THAT(explained.substr(ring, explained.find('\n', ring) - ring), HasSubstr(text));
  EXPECT_THAT(run({"simulate", "all_reduce", "--gpu", "h100"}).err, HasSubstr("--ranks"));
  EXPECT_THAT(run({"simulate", "all_reduce"}).err, HasSubstr("--topology is required"));
}

TEST_F(Simulate, PredictsOnClustersAsExplainDoes) {
  const std::string simulated = path("simulated.json");
  const std::string explained = path("explained.json");
  for (const char* cluster : {"p5:32", "8xA100 x 4, NVLink 300, IB 8x25"}) {
    for (const char* bytes : {"1K", "32M", "4G"}) {
      const Result a = run(
          {"simulate", "all_gather", "--cluster", cluster, "--bytes", bytes, "--json", simulated});
      const Result b = run(
          {"explain", "all_gather", "--cluster", cluster, "--bytes", bytes, "--json", explained});
      ASSERT_EQ(a.code, 0) << a.err;
      ASSERT_EQ(b.code, 0) << b.err;
      const Json left = Json::parse(read(simulated));
      const Json right = Json::parse(read(explained));
      for (const char* field : {"time_us", "time_us_low", "time_us_high", "busbw_GBps"}) {
        EXPECT_EQ(left[field], right[field]) << field;
      }
      EXPECT_LT(left["time_us_low"].get<double>(), left["time_us"].get<double>());
      EXPECT_LT(left["time_us"].get<double>(), left["time_us_high"].get<double>());
      EXPECT_EQ(right["algorithms"][0]["algorithm"], right["chosen"]);
    }
  }
  EXPECT_THAT(run({"simulate", "all_reduce", "--topology", "p5:2"}).out, HasSubstr("16 GPUs"))
      << "an alias";
  EXPECT_THAT(run({"simulate", "all_reduce", "--cluster", "dgx-h10"}).err, HasSubstr("dgx-h100?"));
  EXPECT_THAT(run({"explain", "all_reduce", "--cluster", "p5", "--gpu", "h100"}).err,
              HasSubstr("--cluster excludes --gpu"));
}

// A file of `tutti tune` replaces the cluster file.
TEST_F(Simulate, PredictsCallsOnAMachineAsExplainDoes) {
  CostModel machine = CostModel::defaults();
  machine.cores = 4;
  machine.errors = {{0.3, 0.2, 0.1}};
  const std::string file = path("machine.json");
  std::ofstream(file) << to_json(machine);
  const std::string simulated = path("simulated.json");
  const std::string explained = path("explained.json");
  for (const auto& [bytes, deviation] :
       {std::pair("1K", 0.3), std::pair("32M", 0.2), std::pair("1G", 0.1)}) {
    const Result a = run({"simulate", "all_gather", "--cluster", file, "-n", "4", "--bytes", bytes,
                          "--json", simulated});
    const Result b = run({"explain", "all_gather", "--cluster", file, "-n", "4", "--bytes", bytes,
                          "--json", explained});
    ASSERT_EQ(a.code, 0) << a.err;
    ASSERT_EQ(b.code, 0) << b.err;
    EXPECT_THAT(b.out, HasSubstr("on a host with 4 cores"));
    const Json left = Json::parse(read(simulated));
    const Json right = Json::parse(read(explained));
    for (const char* field : {"time_us", "time_us_low", "time_us_high", "busbw_GBps"}) {
      EXPECT_EQ(left[field], right[field]) << field;
    }
    EXPECT_EQ(left["algorithm"], right["chosen"]);
    const double ratio = left["time_us_high"].get<double>() / left["time_us"].get<double>();
    EXPECT_NEAR(std::log(ratio) / 1.645, deviation, 1e-9);
  }
  EXPECT_THAT(run({"simulate", "all_reduce", "--cluster", file, "--slow", "link0:2"}).err,
              HasSubstr("a file of `tutti tune`"));
}

// A named algorithm is simulated on the cluster's network, with one card per GPU.
TEST_F(Simulate, SimulatesProgramsOnClusters) {
  const std::string json = path("rings.json");
  const Result result = run({"simulate", "all_reduce", "--cluster", "p5:4", "--bytes", "1G",
                             "--algorithm", "rings", "--json", json});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NEAR(Json::parse(read(json))["busbw_GBps"].get<double>(), 8 * 46, 0.05 * 8 * 46);
}

TEST_F(Simulate, UsesAllLinksOfMeshesAndTori) {
  const std::map<std::string, double> busbw = {
      {"mesh:4x4", 100}, {"torus:4x4", 200}, {"torus:4x4x4", 300}};
  for (const auto& [network, expected] : busbw) {
    const std::string json = path("grid.json");
    run({"simulate", "all_reduce", "--topology", network, "--bytes", "1G", "--json", json});
    EXPECT_NEAR(Json::parse(read(json))["busbw_GBps"].get<double>(), expected, 0.02 * expected)
        << network;
  }
}

// One round represents all rounds of a program too long to simulate.
TEST_F(Simulate, SimulatesAHundredThousandRanks) {
  const std::string json = path("large.json");
  for (const auto& [collective, algorithm] :
       {std::pair("all_gather", "ring"), {"all_reduce", "ring"}, {"all_to_all", "linear"}}) {
    const Result result = run({"simulate", collective, "--topology", "fat-tree:hosts=12500,gpus=8",
                               "--bytes", "64M", "--algorithm", algorithm, "--json", json});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("one round"));
    const Json object = Json::parse(read(json));
    EXPECT_GT(object["time_us"].get<double>(), 0);
    EXPECT_GE(object["messages"].get<int64_t>(), int64_t{100'000} * 99'999);
  }
}

// With ZeRO, all-gathers precede the first forward pass and overlap with nothing. A step therefore
// takes longer, although a reduce-scatter takes less time than an all-reduce.
TEST_F(Simulate, SimulatesZero) {
  const auto time = [&](const std::vector<std::string>& more) {
    const std::string json = path("step.json");
    std::vector<std::string> words = {"simulate",     "train", "--cluster",        "p5:2",
                                      "--forward-us", "1000",  "--backward-us",    "2000",
                                      "--json",       json,    "--gradient-bytes", "200M"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return Json::parse(read(json))["time_us"].get<double>();
  };
  const double plain = time({});
  EXPECT_GT(time({"--zero", "2"}), plain);
  EXPECT_GE(time({"--zero", "3"}), time({"--zero", "2"}));
  EXPECT_NEAR(time({"--optimizer-us", "500"}), plain + 500, 1e-6 * plain);
  EXPECT_NEAR(time({"--recompute"}), plain + 1000, 0.02 * plain);
  EXPECT_THAT(run({"simulate", "all_reduce", "--topology", "switch:8", "--zero", "2"}).err,
              HasSubstr("--zero is an option of `tutti simulate train`"));
}

TEST_F(Simulate, FitsAClusterToATable) {
  const std::string table = path("table.csv");
  std::ofstream(table) << "nodes,gpus,collective,bytes,time_us\n";
  std::ofstream rows(table, std::ios::app);
  for (int power = 10; power < 34; ++power) {
    const double bytes = std::ldexp(1, power);
    rows << "2,16,all_reduce," << bytes << ',' << 50 + bytes * 2 / 200e3 << '\n';
  }
  rows.close();
  const std::string fitted = path("fitted.json");
  const Result result = run({"tune", "--fit", table, "--cluster", "p5", "--json", fitted});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("24 calls of all_reduce"));
  const std::string json = path("predicted.json");
  ASSERT_EQ(
      run({"simulate", "all_reduce", "--cluster", fitted, "--bytes", "3G", "--json", json}).code,
      0);
  EXPECT_NEAR(Json::parse(read(json))["time_us"].get<double>(), 50 + 3.2212e9 * 2 / 200e3, 3000);
  EXPECT_THAT(run({"tune", "--cluster", "p5"}).err, HasSubstr("--cluster requires --fit"));
  EXPECT_THAT(run({"tune", "--fit", table, "--cluster", "8xH100"}).err,
              HasSubstr("the table has calls on 2 hosts, but --cluster '8xH100' has no network"));
}

TEST_F(Simulate, ReadsFiles) {
  const std::string file = path("two.yml");
  std::ofstream(file) << "topology: [ Switch ]\nnpus_count: [ 8 ]\nbandwidth: [ 400.0 ]\n"
                         "latency: [ 936.25 ]\n";
  const std::string json = path("file.json");
  const Result result = run({"simulate", "all_reduce", "--topology", file, "--ranks", "8",
                             "--bytes", "1M", "--algorithm", "ring", "--json", json});
  EXPECT_EQ(result.code, 0) << result.err;
  const double expected = 2 * 7 * (2 * 0.93625 + (1 << 17) / 400e3);
  EXPECT_NEAR(Json::parse(read(json))["time_us"].get<double>(), expected, 1e-9 * expected);
}

// On a mesh, no ring in rank order and no pair of such rings uses all links.
TEST_F(Simulate, SimulatesTheRingsOfTopo) {
  const std::string rings = path("rings.json");
  const Result found = run({"topo", "--from", "mesh:4x4", "--json", rings});
  ASSERT_EQ(found.code, 0) << found.err;
  const auto time = [&](const std::string& algorithm) {
    const std::string json = path("t.json");
    const Result result = run({"simulate", "all_reduce", "--topology", "mesh:4x4", "--bytes",
                               "256M", "--algorithm", algorithm, "--json", json});
    EXPECT_EQ(result.code, 0) << result.err;
    return Json::parse(read(json))["time_us"].get<double>();
  };
  EXPECT_LT(time(rings), 0.8 * time("ring_bidirectional"));
  EXPECT_EQ(time("rings"), time(rings)) << "without a file";
  EXPECT_EQ(time("auto"), time(rings)) << "nothing else uses all links";
}

TEST_F(Simulate, SimulatesFaults) {
  const auto time = [&](std::vector<std::string> more) {
    const std::string json = path("t.json");
    std::vector<std::string> words = {"simulate", "all_reduce",  "--topology", "ring:8", "--bytes",
                                      "8M",       "--algorithm", "ring",       "--json", json};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return Json::parse(read(json))["time_us"].get<double>();
  };
  const double usual = time({});
  EXPECT_GT(time({"--slow", "host1-host2:3"}), 2 * usual);
  EXPECT_GT(time({"--straggler", "3:1000"}), 1000);
  EXPECT_GT(time({"--fail", "host0-host1"}), usual);
  EXPECT_EQ(time({"--jitter", "5", "--seed", "9"}), time({"--jitter", "5", "--seed", "9"}));
  EXPECT_GT(time({"--overhead", "1"}), usual);
}

// The root has as many steps as there are ranks; every other rank has one step.
TEST_F(Simulate, SimulatesRootedCollectivesOfManyRanks) {
  for (const char* collective : {"gather", "reduce"}) {
    const Result result =
        run({"simulate", collective, "--topology", "switch:10000", "--bytes", "1M"});
    EXPECT_EQ(result.code, 0) << collective << ": " << result.err;
  }
}

// Eight data x four pipeline ranks; the bubble is (p - 1) (F + B).
TEST_F(Simulate, SimulatesATrainingStep) {
  const std::string json = path("train.json");
  const Result result = run({"simulate",
                             "train",
                             "--topology",
                             "fat-tree:hosts=4,gpus=8",
                             "--pp",
                             "4",
                             "--schedule",
                             "gpipe",
                             "--micro-batches",
                             "6",
                             "--forward-us",
                             "1000",
                             "--backward-us",
                             "2000",
                             "--bucket-bytes",
                             "4M",
                             "--activation-bytes",
                             "1M",
                             "--gradient-bytes",
                             "10M",
                             "--algorithm",
                             "ring",
                             "--json",
                             json});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("8 data x 4 pipeline ranks"), HasSubstr("efficiency")));
  const Json object = Json::parse(read(json));
  const auto number = [&](const char* name) { return object[name].get<double>(); };
  EXPECT_EQ(object["ranks"], 32);
  EXPECT_EQ(object["data_ranks"], 8);
  EXPECT_EQ(object["stages"], 4);
  EXPECT_EQ(object["schedule"], "gpipe");
  EXPECT_EQ(object["algorithm"], "ring");
  EXPECT_EQ(number("compute_us"), 6 * 3000);
  EXPECT_NEAR(number("bubble_us"), 3 * 3000, 1e-6);
  EXPECT_GT(number("exposed_us"), 0);
  EXPECT_NEAR(number("time_us"), number("compute_us") + number("bubble_us") + number("exposed_us"),
              1e-6);
  EXPECT_NEAR(number("efficiency"), number("compute_us") / number("time_us"), 1e-12);
  ASSERT_EQ(object["idle_us"].size(), 4u);
  EXPECT_NEAR(object["idle_us"][3].get<double>(), number("time_us") - number("compute_us"), 1e-6);
  // Two transfers of every micro-batch over three boundaries, and three buckets per stage in a
  // ring.
  EXPECT_EQ(object["messages"], 8 * 2 * 6 * 3 + 4 * 3 * 8 * 14);
  EXPECT_EQ(object["results"].size(), 1u);
}

TEST_F(Simulate, TrainsWithTheAlgorithmThatSuitsTheNetwork) {
  const auto time = [&](const std::string& algorithm) {
    const std::string json = path("train.json");
    const Result result =
        run({"simulate", "train", "--topology", "switch:8", "--forward-us", "10", "--backward-us",
             "20", "--gradient-bytes", "64M", "--algorithm", algorithm, "--json", json});
    EXPECT_EQ(result.code, 0) << result.err;
    return Json::parse(read(json))["time_us"].get<double>();
  };
  EXPECT_LE(time("auto"), time("ring"));
  EXPECT_LT(time("auto"), time("recursive_doubling"));
}

TEST_F(Simulate, NamesMistakesInATrainingStep) {
  const auto error = [&](std::vector<std::string> more,
                         std::vector<std::string> words = {"simulate", "train", "--topology",
                                                           "switch:4", "--forward-us", "10",
                                                           "--backward-us", "20"}) {
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_NE(result.code, 0);
    return result.err;
  };
  EXPECT_THAT(error({"--pp", "3"}), HasSubstr("--pp 3 does not divide 4 ranks"));
  EXPECT_THAT(error({"--pp", "8"}), HasSubstr("--pp 8 does not divide 4 ranks"));
  EXPECT_THAT(error({"--pp", "2"}), HasSubstr("train requires --activation-bytes"));
  EXPECT_THAT(error({}), HasSubstr("train requires --gradient-bytes"));
  EXPECT_THAT(error({"--pp", "4", "--activation-bytes", "1K", "--schedule", "pipedream"}),
              HasSubstr("flushed"));
  EXPECT_THAT(error({"--gradient-bytes", "1M", "--backward-weight-us", "21"}),
              HasSubstr("the full backward"));
  EXPECT_THAT(error({"--gradient-bytes", "1M", "--fail", "rank2", "--algorithm", "ring"}),
              AllOf(HasSubstr("rank 2 failed"), HasSubstr("wait for it: 3")));
  EXPECT_THAT(error({"--bytes", "1M"}), HasSubstr("train excludes --bytes"));
  EXPECT_THAT(error({}, {"simulate", "train", "--topology", "switch:4", "--backward-us", "2"}),
              HasSubstr("train requires --forward-us"));
  EXPECT_THAT(error({}, {"simulate", "all_reduce", "--topology", "switch:4", "--pp", "2"}),
              HasSubstr("--pp is an option of `tutti simulate train`"));
}

TEST_F(Simulate, NamesMistakes) {
  const auto error = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"simulate"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_NE(result.code, 0);
    return result.err;
  };
  EXPECT_THAT(
      error({"all_reduce", "--topology", "switch:4", "--fail", "rank2", "--algorithm", "ring"}),
      AllOf(HasSubstr("rank 2 failed"), HasSubstr("wait for it: 3")));
  EXPECT_THAT(error({"all_reduce", "--topology", "switch:4", "--fail", "host1-switch"}),
              HasSubstr("cut off"));
  EXPECT_THAT(error({"all_reduce", "--topology", "switch:4", "--fail", "nothing"}),
              HasSubstr("unknown link or node 'nothing'"));
  EXPECT_THAT(error({"all_reduce", "--topology", "switch:4", "--ranks", "9"}),
              HasSubstr("connects 4 ranks"));
  EXPECT_THAT(error({"all_reduce", "--topology", "swich:4"}), HasSubstr("did you mean switch"));
  EXPECT_THAT(error({"all_produce", "--topology", "switch:4"}), HasSubstr("unknown collective"));
  EXPECT_THAT(error({"all_reduce", "--topology", "switch:4", "--straggler", "9:1"}),
              HasSubstr("unknown rank 9"));
  EXPECT_THAT(
      error({"all_reduce", "--topology", "ring:20000", "--algorithm", "ring", "--jitter", "5"}),
      AllOf(HasSubstr("the limit is"), HasSubstr("let Tutti choose the algorithm")));
}

}  // namespace
}  // namespace tutti::tool
