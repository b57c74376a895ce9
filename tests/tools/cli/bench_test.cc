// `tutti bench`: what it writes, that every result is right, and what it says to a wrong command.
#include <algorithm>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/reduce_op.h"
#include "base/text.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr DType kDTypes[] = {DType::i8,  DType::i16, DType::i32,    DType::i64,   DType::u8,
                             DType::u16, DType::u32, DType::u64,    DType::f16,   DType::bf16,
                             DType::f32, DType::f64, DType::f8e4m3, DType::f8e5m2};
constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max,
                             ReduceOp::avg, ReduceOp::band, ReduceOp::bor, ReduceOp::bxor};

std::vector<std::string> keys(const json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  return names;
}

class Bench : public Cli {
 protected:
  // Runs it and returns what it wrote with --json; fails where it did not end well.
  json measure(Words arguments) const {
    const std::string file = path("result.json");
    arguments.insert(arguments.begin(), "bench");
    for (const char* word : {"--iterations", "2", "--json", file.c_str()}) {
      arguments.emplace_back(word);
    }
    const Result result = run(arguments);
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_THAT(result.err, IsEmpty()) << "a healthy run is quiet";
    json document = json::parse(read(file), nullptr, false);
    EXPECT_FALSE(document.is_discarded()) << read(file);
    std::filesystem::remove(file);
    return document;
  }

  static void expect_right(const json& document, size_t sizes) {
    ASSERT_EQ(document["results"].size(), sizes);
    for (const json& result : document["results"]) {
      EXPECT_EQ(result["wrong"], 0) << document;
      EXPECT_GT(result["time_us"], 0) << document;
    }
  }
};

TEST_F(Bench, JsonHasItsFields) {
  const json document = measure({"all_reduce", "-n", "2", "--min", "8", "--max", "8K", "--factor",
                                 "32", "--transport", "shm", "--algorithm", "ring"});
  EXPECT_THAT(keys(document),
              ElementsAre("collective", "dtype", "op", "ranks", "results", "transport"));
  EXPECT_EQ(document["collective"], "all_reduce");
  EXPECT_EQ(document["ranks"], 2);
  EXPECT_EQ(document["dtype"], "f32");
  EXPECT_EQ(document["op"], "sum");
  EXPECT_EQ(document["transport"], "shm");
  expect_right(document, 3);
  uint64_t bytes = 8;
  for (const json& result : document["results"]) {
    EXPECT_THAT(keys(result), ElementsAre("algbw_GBps", "algorithm", "busbw_GBps", "bytes", "count",
                                          "min_us", "time_us", "wrong"));
    EXPECT_EQ(result["bytes"], bytes);
    EXPECT_EQ(result["count"], bytes / 4);
    EXPECT_EQ(result["algorithm"], "ring");
    EXPECT_LE(result["min_us"], result["time_us"]);
    const double algbw = result["algbw_GBps"];
    EXPECT_NEAR(algbw, static_cast<double>(bytes) / result["time_us"].get<double>() / 1000,
                algbw * 1e-6);
    EXPECT_NEAR(result["busbw_GBps"].get<double>(), algbw, algbw * 1e-6) << "2 (p-1) / p is 1";
    bytes *= 32;
  }
}

TEST_F(Bench, EveryAllReduceIsRightOnEveryTransportForAnyNumberOfRanks) {
  const Result list = run({"bench", "all_reduce", "--algorithm", "list"});
  EXPECT_EQ(list.code, 0) << list.err;
  Words algorithms;
  for (const std::string& line : split(list.out, '\n')) {
    algorithms.push_back(line.substr(0, line.find(' ')));
  }
  for (const char* expected :
       {"naive", "parameter_server", "ring", "double_binary_tree", "recursive_doubling"}) {
    EXPECT_THAT(algorithms, ::testing::Contains(expected));
  }
  for (const std::string& algorithm : algorithms) {
    for (const std::string transport : {"shm", "tcp"}) {
      for (const int ranks : {1, 2, 3, 5, 8, 16}) {
        SCOPED_TRACE(cat(algorithm, ' ', transport, ' ', ranks));
        const json document =
            measure({"all_reduce", "-n", cat(ranks), "--algorithm", algorithm, "--transport",
                     transport, "--max", "128K", "--factor", "128"});
        EXPECT_EQ(document["ranks"], ranks);
        EXPECT_EQ(document["transport"], transport);
        expect_right(document, 3);
        for (const json& result : document["results"]) EXPECT_EQ(result["algorithm"], algorithm);
      }
    }
  }
}

TEST_F(Bench, EveryCollectiveIsRight) {
  for (const std::string collective :
       {"all_gather", "reduce_scatter", "broadcast", "reduce", "barrier"}) {
    for (const std::string transport : {"shm", "tcp"}) {
      for (const int ranks : {1, 2, 3, 8}) {
        SCOPED_TRACE(cat(collective, ' ', transport, ' ', ranks));
        const json document = measure({collective, "-n", cat(ranks), "--transport", transport,
                                       "--max", "128K", "--factor", "128"});
        EXPECT_EQ(document["collective"], collective);
        expect_right(document, collective == "barrier" ? 1 : 3);
      }
    }
  }
}

TEST_F(Bench, EveryOperatorIsRightOnEveryTypeThatHasIt) {
  for (const DType dtype : kDTypes) {
    const std::string bytes = cat(1003 * size_of(dtype));
    for (const ReduceOp op : kOps) {
      if (!supports(op, dtype)) continue;
      SCOPED_TRACE(cat(name(dtype), ' ', name(op)));
      const json document =
          measure({"all_reduce", "-n", "3", "--dtype", std::string(name(dtype)), "--op",
                   std::string(name(op)), "--min", bytes, "--max", bytes});
      EXPECT_EQ(document["dtype"], name(dtype));
      EXPECT_EQ(document["op"], name(op));
      expect_right(document, 1);
      EXPECT_EQ(document["results"][0]["count"], 1003);
    }
  }
}

TEST_F(Bench, CsvSaysTheSameAsJson) {
  const json document = measure({"all_gather", "-n", "3", "--min", "1K", "--max", "64K", "--factor",
                                 "8", "--csv", path("result.csv")});
  const std::vector<std::string> lines = split(read(path("result.csv")), '\n');
  ASSERT_EQ(lines.size(), document["results"].size() + 1);
  EXPECT_EQ(lines[0], "bytes,count,algorithm,time_us,min_us,algbw_GBps,busbw_GBps,wrong");
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> cells = split(lines[i], ',');
    const json& result = document["results"][i - 1];
    ASSERT_EQ(cells.size(), 8u);
    EXPECT_EQ(cells[0], result["bytes"].dump());
    EXPECT_EQ(cells[1], result["count"].dump());
    EXPECT_EQ(cells[2], result["algorithm"]);
    const double time = result["time_us"];
    EXPECT_NEAR(std::stod(cells[3]), time, time * 1e-4);
    EXPECT_EQ(cells[7], "0");
  }
}

TEST_F(Bench, TheTableHasARowForEachSize) {
  const Result result = run({"bench", "all_reduce", "-n", "2", "--max", "1K", "--factor", "2"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("busbw GB/s"));
  EXPECT_EQ(std::ranges::count(result.out, '\n'), 2 + 8) << result.out;
}

TEST_F(Bench, ManyMoreRanksThanCoresWork) {
  for (const std::string transport : {"shm", "tcp"}) {
    const json document = measure(
        {"all_reduce", "-n", "16", "--max", "1M", "--factor", "2", "--transport", transport});
    expect_right(document, 18);
  }
}

struct Mistake {
  std::string name;
  Words arguments;
  std::vector<std::string> said;
};

class BenchMistake : public Cli, public ::testing::WithParamInterface<Mistake> {};

TEST_P(BenchMistake, IsSaidOnceWithARemedy) {
  Words arguments = {"bench"};
  for (std::string word : GetParam().arguments) arguments.push_back(word);
  const Result result = run(arguments);
  EXPECT_THAT(result.code, ::testing::AnyOf(1, 2));
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  for (const std::string& part : GetParam().said) EXPECT_THAT(result.err, HasSubstr(part));
}

INSTANTIATE_TEST_SUITE_P(
    Cli, BenchMistake,
    ::testing::Values(
        Mistake{"NoCollective", {}, {"collective is required", "--help"}},
        Mistake{"Collective", {"all_redcue", "-n", "2"}, {"all_redcue", "all_reduce, all_gather"}},
        Mistake{"Algorithm",
                {"all_reduce", "-n", "2", "--algorithm", "rign"},
                {"rign", "auto, naive", "ring", "recursive_doubling"}},
        Mistake{"OtherAlgorithm",
                {"all_gather", "-n", "2", "--algorithm", "double_binary_tree"},
                {"all_gather", "double_binary_tree", "auto, ring"}},
        Mistake{"DType", {"all_reduce", "-n", "2", "--dtype", "f33"}, {"f33", "f32", "bf16", "u8"}},
        Mistake{"Op", {"all_reduce", "-n", "2", "--op", "add"}, {"add", "sum prod min max"}},
        Mistake{"OpOfAnotherType",
                {"all_reduce", "-n", "2", "--op", "band"},
                {"band", "f32", "integers only"}},
        Mistake{
            "Transport", {"all_reduce", "-n", "2", "--transport", "udp"}, {"udp", "auto|shm|tcp"}},
        Mistake{"Size", {"all_reduce", "-n", "2", "--min", "8Q"}, {"8Q", "K, M, G or T"}},
        Mistake{"NegativeSize", {"all_reduce", "-n", "2", "--max", "-8"}, {"-8", "size in bytes"}},
        Mistake{"SizesTurned",
                {"all_reduce", "-n", "2", "--min", "2K", "--max", "1K"},
                {"2K", "1K", "--min must not exceed --max"}},
        Mistake{"Factor", {"all_reduce", "-n", "2", "--factor", "1"}, {"--factor", "at least 2"}},
        Mistake{"NoRanks", {"all_reduce", "-n", "0"}, {"--ranks", "0"}},
        Mistake{"RanksThatAreNoNumber", {"all_reduce", "-n", "two"}, {"--ranks", "two"}},
        Mistake{"Iterations", {"all_reduce", "--iterations", "-5"}, {"--iterations", "-5"}},
        Mistake{"Option", {"all_reduce", "--algorithmm", "ring"}, {"--algorithmm", "--help"}},
        Mistake{"Json",
                {"all_reduce", "-n", "2", "--json", "/nonexistent/x"},
                {"cannot write /nonexistent/x", "No such file", "remedy"}},
        Mistake{"Csv",
                {"all_reduce", "-n", "2", "--csv", "/nonexistent/x"},
                {"cannot write /nonexistent/x", "No such file", "remedy"}}),
    [](const auto& mistake) { return mistake.param.name; });

TEST_F(Bench, AFullDiskIsAnError) {
  for (const std::string option : {"--json", "--csv"}) {
    const Result result =
        run({"bench", "all_reduce", "-n", "2", "--max", "64", option, "/dev/full"});
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, HasSubstr("cannot write /dev/full: No space left on device"));
  }
}

TEST_F(Bench, AsManyRanksAsTheLauncherStarted) {
  const Result result =
      run({"run", "-n", "2", "--", tutti(), "bench", "all_reduce", "-n", "3", "--max", "64"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("-n 3, but the launcher started 2 ranks"));
}

}  // namespace
}  // namespace tutti::tool
