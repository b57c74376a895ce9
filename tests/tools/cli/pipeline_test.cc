// Tests `tutti pipeline`: schedules shown, priced, drawn and proved.
#include <cmath>
#include <pugixml.hpp>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class Pipeline : public Cli {
 protected:
  // Returns the numbers of one schedule with these additional arguments.
  Json numbers(Words arguments) const {
    const std::string file = path("numbers.json");
    arguments.insert(arguments.begin(), "pipeline");
    arguments.insert(arguments.end(), {"--json", file});
    const Result result = run(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, IsQuiet());
    return Json::parse(read(file));
  }
};

TEST_F(Pipeline, PrintsProofMemoryAndBubble) {
  const Result result = run({"pipeline", "1f1b", "-p", "4", "-m", "8"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, IsQuiet());
  EXPECT_THAT(result.out, StartsWith("1f1b, 4 ranks, 8 micro-batches\n"));
  EXPECT_THAT(result.out, AllOf(HasSubstr("proved: no deadlock"),
                                HasSubstr("makespan 33, bubble 27.27% (9 of 33 idle)"),
                                HasSubstr("period 33, bubble 27.27% (9 of 33 idle)"),
                                HasSubstr("(p-1)/(m+p-1) = 27.27%: met")));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(result.out, ContainsRegex(cat("\n   ", rank, " +", 4 - rank, " +1 ")))
        << "p - rank activations, one version";
  }
}

TEST_F(Pipeline, PrintsATimetableThatFits) {
  const Words command = {"pipeline", "1f1b", "-p", "2", "-m", "2"};
  EXPECT_THAT(run(command).out, EndsWith("\nrank 0  F0 F1 .  .  B0--- .  B1---\n"
                                         "rank 1  .  F0 B0--- F1 B1--- .  .\n"));
  Words wide = {"pipeline", "1f1b", "-p", "2", "-m", "40"};
  EXPECT_THAT(run(wide).out, Not(HasSubstr("rank 0  F0")));
  wide.emplace_back("--table");
  EXPECT_THAT(run(wide).out, HasSubstr("\nrank 0  F0"));
}

TEST_F(Pipeline, WritesAPicture) {
  const std::string svg = path("zb.svg");
  const Result result = run({"pipeline", "zb-h1", "-p", "4", "-m", "6", "--svg", svg});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("makespan 21")) << "3m + p - 1";
  pugi::xml_document document;
  ASSERT_TRUE(document.load_file(svg.c_str()));
  EXPECT_STREQ(document.child("svg").child("title").child_value(),
               "zb-h1, 4 ranks, 6 micro-batches");
  for (const char* kind : {"forward", "backward_input", "backward_weight"}) {
    EXPECT_EQ(document.select_nodes(cat("//rect[@class='", kind, "']").c_str()).size(), 4u * 6);
  }
  EXPECT_TRUE(document.select_node("//text[contains(., 'makespan 21, bubble 14.29%')]"));
  EXPECT_TRUE(document.select_node("//text[contains(., 'activations held at a time')]"));
}

TEST_F(Pipeline, WritesAllNumbers) {
  const Json object = numbers({"interleaved", "-p", "2", "-m", "4", "-v", "3", "--forward", "2",
                               "--backward-input", "3", "--backward-weight", "1"});
  EXPECT_EQ(object["schedule"], "interleaved");
  EXPECT_EQ(object["ranks"], 2);
  EXPECT_EQ(object["micro_batches"], 4);
  EXPECT_EQ(object["virtual"], 3);
  EXPECT_EQ(object["makespan"], (3 * 4 + 1) * (2 + 3 + 1));
  EXPECT_NEAR(object["bubble"], 1.0 / (3 * 4 + 1), 1e-12);
  EXPECT_EQ(object["activations"].size(), 2u);
  EXPECT_EQ(object["versions"], Json({1, 1}));
  ASSERT_EQ(object["spans"].size(), 2u * 4 * 6);
  double busy = 0;
  for (const Json& span : object["spans"]) {
    const double time = span["end"].get<double>() - span["start"].get<double>();
    EXPECT_EQ(time, span["kind"] == "forward" ? 2 : 4) << span;
    EXPECT_EQ(span["chunk"].get<int>() % 2, span["rank"]) << span;
    busy += time;
  }
  EXPECT_EQ(busy, 4 * 6 * (2 + 4));
}

TEST_F(Pipeline, ReachesTheClosedForms) {
  const auto met = [&](Words words) {
    words.insert(words.begin(), "pipeline");
    const Result result = run(words);
    EXPECT_THAT(result.out, HasSubstr(": met\n")) << words[1] << result.err;
  };
  met({"gpipe", "-p", "4", "-m", "8"});
  met({"1f1b", "-p", "4", "-m", "8"});
  met({"interleaved", "-p", "4", "-m", "8", "-v", "2"});
  met({"zb-h1", "-p", "4", "-m", "8"});
  met({"zb-h2", "-p", "4", "-m", "8"});
  met({"chimera", "-p", "4", "-m", "8", "--forward", "2"});
  const Result other = run({"pipeline", "1f1b", "-p", "4", "-m", "8", "--message", "0.5"});
  EXPECT_THAT(other.out, AllOf(HasSubstr("messages take none"), Not(HasSubstr(": met"))));
}

TEST_F(Pipeline, ShowsAsynchronousSchedulesWithoutFlushes) {
  const Json pipedream = numbers({"pipedream", "-p", "4", "-m", "8"});
  EXPECT_EQ(pipedream["accumulated"], 1);
  EXPECT_EQ(pipedream["versions"], Json({4, 3, 2, 1}));
  EXPECT_EQ(pipedream["unflushed_period"], 8 * 3);
  EXPECT_EQ(pipedream["unflushed_bubble"], 0);
  const Json delayed = numbers({"2bw", "-p", "4", "-m", "8", "--accumulate", "4"});
  EXPECT_EQ(delayed["schedule"], "pipedream-2bw");
  for (const Json& versions : delayed["versions"]) EXPECT_LE(versions, 2);
  EXPECT_EQ(delayed["unflushed_bubble"], 0);
  EXPECT_FALSE(numbers({"1f1b", "-p", "4", "-m", "8"}).contains("unflushed_bubble"));
}

TEST_F(Pipeline, ProvesAllSchedules) {
  const Result all = run({"pipeline", "--prove", "--max-ranks", "4", "--max-micro-batches", "6",
                          "--max-virtual", "3"});
  EXPECT_EQ(all.code, 0) << all.out;
  EXPECT_THAT(all.err, IsQuiet());
  EXPECT_THAT(all.out,
              AllOf(ContainsRegex("gpipe +24 shapes"), ContainsRegex("1f1b +24 shapes"),
                    ContainsRegex("zb-h1 +24 shapes"), ContainsRegex("pipedream-2bw +[1-9]"),
                    ContainsRegex("\n[0-9]+ schedules proved\n$")));
  const Result one =
      run({"pipeline", "gpipe", "--prove", "--max-ranks", "2", "--max-micro-batches", "3"});
  EXPECT_EQ(one.code, 0);
  EXPECT_THAT(one.out, EndsWith("\n6 schedules proved\n"));
}

TEST_F(Pipeline, ListsAllSchedules) {
  const Result result = run({"pipeline", "--list"});
  EXPECT_EQ(result.code, 0);
  std::vector<std::string> names;
  for (const std::string& line : split(result.out, '\n')) {
    if (!line.empty()) names.push_back(line.substr(0, line.find(' ')));
  }
  EXPECT_THAT(names, ElementsAre("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "chimera",
                                 "pipedream", "pipedream-2bw"));
}

TEST_F(Pipeline, NamesMistakes) {
  const auto expect_refused = [&](Words arguments, const std::string& said) {
    arguments.insert(arguments.begin(), "pipeline");
    const Result result = run(arguments);
    EXPECT_NE(result.code, 0);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, HasSubstr(said));
  };
  expect_refused({}, "SCHEDULE is required");
  expect_refused({"1f1b", "-p", "4"}, "--micro-batches is required");
  expect_refused({"1f2b", "-p", "4", "-m", "4"}, "1f1b");
  expect_refused({"chimera", "-p", "3", "-m", "4"}, "even number of ranks");
  expect_refused({"1f1b", "-p", "0", "-m", "4"}, "at least one rank");
  expect_refused({"1f1b", "-p", "4", "-m", "4", "-v", "2"}, "interleaved");
  expect_refused({"1f1b", "-p", "4", "-m", "4", "--accumulate", "2"}, "remove --accumulate");
  expect_refused({"pipedream", "-p", "4", "-m", "4", "--accumulate", "3"}, "updates of 3");
  expect_refused({"1f1b", "-p", "4", "-m", "4", "--forward", "1,2"}, "2 costs for forward");
  expect_refused({"1f1b", "-p", "4", "-m", "4", "--message", "-1"}, "-1");
  expect_refused({"1f1b", "-p", "60000", "-m", "60000"}, "too large to show");
  expect_refused({"1f1b", "-p", "4", "-m", "4", "--svg", "/nowhere/at/all.svg"},
                 "/nowhere/at/all.svg");
  expect_refused({"--prove", "-p", "4"}, "--prove excludes --ranks");
  expect_refused({"--prove", "--max-virtual", "0"}, "--max-virtual is 0");
  expect_refused({"1f1b", "-p", "4", "-m", "4", "--max-ranks", "4"}, "requires --prove");
}

// A sleep is never too short, so no step can be faster than simulated.
TEST_F(Pipeline, MeasuresWithRanksThatSleep) {
  for (const std::string schedule : {"1f1b", "zb-h2", "chimera", "pipedream-2bw"}) {
    SCOPED_TRACE(schedule);
    const Json object =
        numbers({schedule, "-p", "2", "-m", "4", "--measure", "--sleep", "2", "--steps", "2"});
    const Json& measured = object["measured"];
    EXPECT_GE(measured["makespan"].get<double>(), 0.999 * object["makespan"].get<double>());
    EXPECT_GT(measured["period"], 0);
    EXPECT_GE(measured["bubble"], 0);
    EXPECT_LT(measured["steady_bubble"], 1);
  }
}

TEST_F(Pipeline, RefusesImpossibleMeasurements) {
  const Words simple = {"pipeline", "1f1b", "-p", "2", "-m", "4"};
  const auto refused = [&](Words command, const Words& more) {
    command.insert(command.end(), more.begin(), more.end());
    const Result result = run(command);
    EXPECT_NE(result.code, 0);
    return result.err;
  };
  EXPECT_THAT(refused(simple, {"--sleep", "5"}), HasSubstr("--measure"));
  EXPECT_THAT(refused(simple, {"--measure", "--message", "1"}), HasSubstr("--message"));
  EXPECT_THAT(refused({"pipeline"}, {"--measure", "-p", "2"}), HasSubstr("--ranks"));
  EXPECT_THAT(refused({"run", "-n", "3", "--", tutti()},
                      {"pipeline", "1f1b", "-p", "2", "-m", "4", "--measure"}),
              HasSubstr("the pipeline has 2 ranks, but the launcher started 3"));
}

}  // namespace
}  // namespace tutti::tool
