// Tests tutti train --factors: weight gradients sent as their factors.
#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TrainFactors : public Cli {
 protected:
  static Words command(const Words& more) {
    Words words = {"train",
                   "--model",
                   "perceptron",
                   "--data",
                   "shapes:8x8:64",
                   "--widths",
                   "64",
                   "64",
                   "--batch",
                   "12",
                   "--steps",
                   "4",
                   "--validation-samples",
                   "8"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // Returns all lines of the run's log, and its output.
  std::pair<std::vector<Json>, std::string> train(Words more) const {
    std::filesystem::remove(path("log"));
    more.insert(more.end(), {"--json", path("log")});
    if (std::ranges::find(more, "--ranks") == more.end()) more.insert(more.end(), {"--ranks", "2"});
    const Result result = run(command(more));
    EXPECT_EQ(result.code, 0) << result.err;
    std::istringstream file(read(path("log")));
    std::vector<Json> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
    return {lines, result.out};
  }
  void expect_refused(const Words& more, const char* what,
                      Process::Environment environment = {}) const {
    SCOPED_TRACE(what);
    Words words = command({"--factors", "auto", "--ranks", "2"});
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words, std::move(environment));
    EXPECT_NE(result.code, 0);
    EXPECT_THAT(result.err, HasSubstr(what));
    EXPECT_THAT(result.err, HasSubstr("--factors"));
  }
};

// With 12 rows, the factors of a 64 x 64 matrix have 12 x (64 + 64) values, fewer than the 2 x 64 x
// 64 of an all-reduce. For a 64 x 3 matrix, 12 x (64 + 3) values are more than 2 x 64 x 3.
TEST_F(TrainFactors, TrafficOfFactorsIsReported) {
  const auto [plain, text_of_plain] = train({});
  const auto [factors, text] = train({"--factors", "auto"});
  ASSERT_EQ(factors.size(), plain.size());
  for (size_t i = 0; i + 1 < plain.size(); ++i) {
    EXPECT_NEAR(factors[i].at("loss"), plain[i].at("loss"), 1e-5);
    EXPECT_LT(factors[i].at("bytes_sent").get<double>(),
              0.5 * plain[i].at("bytes_sent").get<double>());
  }
  EXPECT_FALSE(plain.back().contains("factors"));
  const Json told = factors.back().at("factors");
  EXPECT_EQ(told.size(), 2u);
  const Json square = {
      {"rows", 12}, {"bytes", 0.5 * 12 * 128 * 4}, {"gradient_bytes", 2 * 0.5 * 64 * 64 * 4}};
  EXPECT_EQ(told.at("layer.1.weight"), square);
  EXPECT_THAT(text, HasSubstr("of 2 weight gradients: a rank sends 6.1 kB a step, not 32.8 kB"));
  EXPECT_THAT(text_of_plain, Not(HasSubstr("weight gradients")));
  EXPECT_EQ(train({"--factors", "all"}).first.back().at("factors").size(), 3u);
}

TEST_F(TrainFactors, UnsupportedOptionsAreRefused) {
  expect_refused({"--zero", "2"}, "ZeRO stage 2");
  expect_refused({"--compression", "bf16"}, "compression");
  expect_refused({"--sync", "local:4"}, "--sync local:4");
  expect_refused({"--tp", "2"}, "tensor-parallel ranks");
  expect_refused({"--pp", "2", "--schedule", "chimera"}, "the schedule chimera");
  expect_refused({}, "TUTTI_DETERMINISTIC=1", {{"TUTTI_DETERMINISTIC", "1"}});
  const Result result = run(command({"--factors", "some", "--ranks", "2"}));
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("--factors"));
}

// On ranks with other instructions, products would differ in the last bits.
TEST_F(TrainFactors, RanksWithOtherInstructionsAreRefused) {
  const std::string script =
      "test ${TUTTI_RANK:-$RANK} = 0 && export TUTTI_CPU=baseline; exec \"$0\" \"$@\"";
  Words words = {"run", "-n", "2", "--", "sh", "-c", script, tutti()};
  const Words train = command({"--factors", "all"});
  words.insert(words.end(), train.begin(), train.end());
  const Result result = run(words);
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("ranks with different processors"));
}

// --factors is a setting of the layout, not of the run.
TEST_F(TrainFactors, ResumedRunMayChangeFactors) {
  const Words saved = {"--checkpoint", path("run"), "--lr-schedule", "constant"};
  Words more = saved;
  more.insert(more.end(), {"--factors", "auto"});
  train(more);
  more = saved;
  more.insert(more.end(), {"--resume", "--steps", "6"});
  const auto [lines, text] = train(more);
  EXPECT_EQ(lines.back().at("resumed_at"), 4);
  EXPECT_FALSE(lines.back().contains("factors"));
}

TEST_F(TrainFactors, PipelinesWithoutFlushesSendFactors) {
  const Words pipeline = {"--ranks", "4", "--pp", "2", "--schedule", "pipedream-2bw"};
  const auto [plain, text_of_plain] = train(pipeline);
  Words more = pipeline;
  more.insert(more.end(), {"--factors", "all"});
  const auto [factors, text] = train(more);
  ASSERT_EQ(factors.size(), plain.size());
  for (size_t i = 0; i + 1 < plain.size(); ++i) {
    EXPECT_NEAR(factors[i].at("loss"), plain[i].at("loss"), 1e-5);
  }
}

}  // namespace
}  // namespace tutti::tool
