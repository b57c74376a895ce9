// Tests `tutti explain`, and the errors of `tutti tune`.
#include <algorithm>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "collectives/cost/cost_model.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const testing::Process::Environment kDefaults = {{"TUTTI_TUNE_FILE", "none"}};

class Prices : public Cli {
 protected:
  void expect_refused(const Words& arguments, const std::string& said,
                      const Process::Environment& environment = kDefaults) const {
    const Result result = run(arguments, environment);
    EXPECT_NE(result.code, 0);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, HasSubstr(said));
  }
};

std::vector<double> times(const std::string& text) {
  std::vector<double> found;
  const std::regex time("([0-9.]+) us  = ");
  for (std::sregex_iterator i(text.begin(), text.end(), time), end; i != end; ++i) {
    found.push_back(std::stod((*i)[1]));
  }
  return found;
}

TEST_F(Prices, ExplainSortsCandidatesAndMarksTheChoice) {
  const Result result = run({"explain", "all_reduce", "-n", "8", "--bytes", "1M"}, kDefaults);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, IsQuiet());
  const std::vector<double> found = times(result.out);
  ASSERT_GT(found.size(), 5u);
  EXPECT_TRUE(std::is_sorted(found.begin(), found.end())) << result.out;
  EXPECT_THAT(result.out, AllOf(HasSubstr("costs: defaults"), HasSubstr(" ring "),
                                ContainsRegex("hierarchical .*out: does not run on 8 ranks")));
  const size_t mark = result.out.find("\n  > ");
  ASSERT_NE(mark, std::string::npos);
  EXPECT_EQ(times(result.out.substr(mark))[0], found[0]);
  EXPECT_EQ(result.out.find("\n  > ", mark + 1), std::string::npos);
}

TEST_F(Prices, ExplainShowsHowAKernelRunsACall) {
  const Result one =
      run({"explain", "all_reduce", "-n", "8", "--gpu", "h100", "--bytes", "256M"}, kDefaults);
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_THAT(one.out, AllOf(HasSubstr("costs: published"), ContainsRegex("\n  > .* simple "),
                             ContainsRegex(" one_shot .* lines "),
                             ContainsRegex("hierarchical .*out: does not run on 8 ranks"),
                             ContainsRegex("What bounds .*: the link of a GPU, (9[0-9]|100)%")));
  // The barrier has one size, and all other collectives have a range of sizes.
  const Result all = run({"explain", "all_gather", "-n", "4", "--gpu", "a100"}, kDefaults);
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_THAT(all.out, AllOf(ContainsRegex("\n +8  .* lines "),
                             ContainsRegex("\n +1073741824  .* simple ")));
  const Result barrier = run({"explain", "barrier", "-n", "4", "--gpu", "b200"}, kDefaults);
  EXPECT_EQ(barrier.code, 0) << barrier.err;
  EXPECT_THAT(barrier.out, HasSubstr("  > dissemination"));
}

TEST_F(Prices, ExplainTakesMeasuredCostsOfGpus) {
  CostModel model = CostModel::defaults();
  GpuCosts& gpu = model.gpus["mine"];
  gpu.simple.call = gpu.lines.call = 1;
  std::ofstream(path("gpu.json")) << to_json(model);
  const Result result = run({"explain", "all_reduce", "-n", "2", "--gpu", "mine"},
                            {{"TUTTI_TUNE_FILE", path("gpu.json")}});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("gpu.json"), HasSubstr("the launch, 100%")));
}

TEST_F(Prices, ExplainNamesTheBottleneck) {
  CostModel model = CostModel::defaults();
  model.tcp.wire = 20e-9;
  model.tcp.latency = 1e-3;
  std::ofstream(path("slow.json")) << to_json(model);
  const auto bound = [&](const Words& more, const testing::Process::Environment& environment) {
    Words words = {"explain", "all_reduce", "-n", "16"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words, environment);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out.substr(std::min(result.out.find("What bounds"), result.out.size()));
  };
  const testing::Process::Environment slow = {{"TUTTI_TUNE_FILE", path("slow.json")}};
  EXPECT_THAT(bound({"--group", "4", "--bytes", "4M"}, slow),
              ContainsRegex("(leaves|enters) host [0-3] by its network card.* (9[0-9]|100)% of"));
  EXPECT_THAT(bound({"--group", "4", "--bytes", "8"}, slow), HasSubstr("latency"));
  EXPECT_THAT(bound({"--bytes", "16M"}, kDefaults), HasSubstr("a core"));
}

TEST_F(Prices, ExplainNamesAlgorithmsThatDeterminismExcludes) {
  const Words question = {"explain", "all_reduce", "-n", "5", "--bytes", "64K"};
  Words deterministic = question;
  deterministic.push_back("--deterministic");
  const std::string out = "out: its grade is same bits; the call requires canonical";
  EXPECT_THAT(run(question, kDefaults).out, Not(HasSubstr(out)));
  EXPECT_THAT(run(deterministic, kDefaults).out, ContainsRegex(" ring +same bits +" + out));
  EXPECT_THAT(run(question, {{"TUTTI_TUNE_FILE", "none"}, {"TUTTI_DETERMINISTIC", "1"}}).out,
              HasSubstr(out));
}

TEST_F(Prices, ExplainConsidersHosts) {
  const Words question = {"explain", "all_reduce", "-n", "16", "--group", "8", "--bytes", "4M"};
  EXPECT_THAT(run(question, kDefaults).out, ContainsRegex("hierarchical .* us  = "));
  Words uneven = question;
  uneven[5] = "8,5,3";
  EXPECT_THAT(run(uneven, kDefaults).out,
              AllOf(HasSubstr("in groups of 8, 5, 3"), ContainsRegex("hierarchical .* us  = ")));
}

TEST_F(Prices, ExplainReadsTheFileOfTheSetting) {
  std::ofstream(path("broken.json")) << "{";
  const Result result =
      run({"explain", "barrier", "-n", "2"}, {{"TUTTI_TUNE_FILE", path("broken.json")}});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("broken.json"), HasSubstr("run `tutti tune` again")));
}

TEST_F(Prices, WrongArgumentsAreRefused) {
  expect_refused({"explain", "al_reduce"}, "use one of all_reduce");
  expect_refused({"explain", "all_reduce", "--dtype", "f31"}, "f31");
  expect_refused({"explain", "all_reduce", "-n", "4", "--group", "3"}, "does not divide 4");
  expect_refused({"explain", "all_reduce", "-n", "4", "--group", "3,2"}, "has 5 ranks in total");
  expect_refused({"explain", "all_reduce", "-n", "4", "--group", "4,0"}, "of at least 1, not 0");
  expect_refused({"explain", "all_reduce", "-n", "4", "--group", "2,2,"}, "2,2,");
  expect_refused({"explain", "all_reduce", "--transport", "pigeon"}, "pigeon");
  expect_refused({"explain", "all_reduce", "--gpu", "h1000"}, "a100, h100");
  expect_refused({"explain", "all_reduce", "--gpu", "h100", "--group", "2"}, "--gpu excludes");
}

TEST_F(Prices, ExplainPredictsEveryTransport) {
  const auto price = [&](const char* transport) {
    const Result result =
        run({"explain", "all_reduce", "-n", "4", "--transport", transport}, kDefaults);
    EXPECT_EQ(result.code, 0) << result.err;
    return times(result.out).at(0);
  };
  EXPECT_LT(price("shm"), price("tcp"));
  EXPECT_LT(price("shm+ofi"), price("ofi"));
}

// Between hosts, `tutti explain` assumes the fabric that a job would choose.
TEST_F(Prices, ExplainSelectsTheBestMeasuredFabric) {
  CostModel model = CostModel::defaults();
  const std::string file = path("costs.json");
  const auto said = [&](const Words& more) {
    std::ofstream(file) << to_json(model);
    Words words = {"explain", "all_reduce", "-n", "4"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words, {{"TUTTI_TUNE_FILE", file}});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, IsQuiet());
    return result.out;
  };
  model.ofi = model.tcp;
  EXPECT_THAT(said({"--group", "2"}), HasSubstr("auto: shm+tcp"));
  model.ofi = model.shm;
  EXPECT_THAT(said({"--group", "2"}), HasSubstr("auto: shm+ofi"));
  EXPECT_EQ(times(said({"--group", "2", "--transport", "auto"})),
            times(said({"--group", "2", "--transport", "shm+ofi"})));
  EXPECT_THAT(said({}), HasSubstr("auto: shm\n")) << "one host needs none";
}

// The errors precede every measurement.
TEST_F(Prices, TuneNeedsAWritableFile) {
  expect_refused({"tune"}, "--json FILE");
  expect_refused({"tune", "--json", "/proc/nowhere/at/all.json"}, "/proc/nowhere/at/all.json");
}

// A signal ends the measurement, and the numbers measured so far are kept.
TEST_F(Prices, TuneKeepsItsMeasurements) {
  const std::string file = path("kept.json");
  const std::string said = path("said");
  // The script ends `tutti tune` while it measures the second class of paths.
  const std::string script =
      cat(tutti(), " tune --json ", file, " 2> ", said, " & pid=$!; until grep -q 'measuring tcp' ",
          said, " || ! kill -0 $pid; do sleep 0.1; done; kill -TERM $pid; wait $pid");
  const Result result = start_program({"sh", "-c", script}).finish();
  EXPECT_EQ(result.code, 143) << read(said);
  EXPECT_THAT(result.out, HasSubstr(cat("are in ", file)));
  EXPECT_THAT(read(said), AllOf(HasSubstr("s left"), HasSubstr("interrupted")));
  EXPECT_NE(Json::parse(read(file)).find("shm"), nullptr);
}

}  // namespace
}  // namespace tutti::tool
