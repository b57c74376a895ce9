// Tests tutti train --mix: layers that are batch-, model- or domain-parallel over the same ranks.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::HasSubstr;

class TrainMix : public Cli {
 protected:
  TrainMix() {
    write_images("train", 64);
    write_images("t10k", 16);
  }

  Words command(const Words& more) const {
    Words words = {"train",  "--data",
                   path(""), "--batch",
                   "12",     "--micro-batch",
                   "6",      "--steps",
                   "3",      "--validation-samples",
                   "16"};
    words.insert(words.end(), model_.begin(), model_.end());
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // Returns the losses of the steps of a run that must succeed.
  std::vector<double> losses(const Words& more, Process::Environment environment = {}) const {
    std::filesystem::remove(path("j"));
    Words words = command(more);
    for (const std::string& word : {std::string("--json"), path("j")}) words.push_back(word);
    const Result result = run(words, std::move(environment));
    EXPECT_EQ(result.code, 0) << result.err;
    std::vector<double> found;
    for (const std::string& line : split(read(path("j")), '\n')) {
      const Json object = line.empty() ? Json::object() : Json::parse(line);
      if (object.contains("step")) found.push_back(object.at("loss"));
    }
    return found;
  }
  // Expects each of these runs to have the losses of a single rank.
  void expect_same_losses(const std::vector<Words>& runs) const {
    const std::vector<double> alone = losses({"--ranks", "1"});
    ASSERT_EQ(alone.size(), 3u);
    for (const Words& more : runs) {
      SCOPED_TRACE(::testing::PrintToString(more));
      const std::vector<double> found = losses(more);
      ASSERT_EQ(found.size(), alone.size());
      for (size_t step = 0; step < found.size(); ++step) {
        EXPECT_NEAR(found[step], alone[step], 1e-5 * alone[step]);
      }
    }
  }
  void expect_refused(const Words& more, const std::vector<std::string>& parts) const {
    const Result result = run(command(more));
    EXPECT_NE(result.code, 0);
    EXPECT_LT(result.err.size(), 600u) << result.err;
    for (const std::string& part : parts) EXPECT_THAT(result.err, HasSubstr(part));
  }

  Words model_ = {"--model", "perceptron", "--widths", "13", "--widths", "6"};

 private:
  // Writes two of MNIST's four files, with images of 5 x 4.
  void write_images(const std::string& prefix, uint32_t count) const {
    const auto number = [](uint32_t value) {
      std::string bytes;
      for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(value >> shift);
      return bytes;
    };
    std::string images = number(2051) + number(count) + number(5) + number(4);
    std::string labels = number(2049) + number(count);
    for (uint32_t i = 0; i < count * 20; ++i) images += static_cast<char>(i * i % 251);
    for (uint32_t i = 0; i < count; ++i) labels += static_cast<char>(i % 7);
    write(prefix + "-images-idx3-ubyte", images);
    write(prefix + "-labels-idx1-ubyte", labels);
  }
};

TEST_F(TrainMix, LettersAndFilesTrainTheSameModel) {
  const std::string file = write("mix.txt", "# three layers\nm\nb\nm\n");
  expect_same_losses({{"--tp", "2"},
                      {"--tp", "2", "--mix", "b,m,b"},
                      {"--tp", "2", "--mix", file},
                      {"--tp", "3", "--mix", "m,b,b"},
                      {"--tp", "2", "--dp", "2", "--mix", "b,b,m"},
                      {"--tp", "2", "--zero", "3", "--recompute", "full", "--mix", "b,m,m"},
                      {"--tp", "2", "--mix", "auto"}});
}

TEST_F(TrainMix, ConvolutionsAreDomainParallelToo) {
  model_ = {"--model", "convnet", "--filters", "4", "--filters", "6", "--widths", "8"};
  expect_same_losses({{"--tp", "2", "--mix", "d,d,b,m"},
                      {"--tp", "3", "--mix", "b,d,m,b"},
                      {"--tp", "2", "--dp", "2", "--zero", "3", "--mix", "d,m,b,b"},
                      {"--tp", "2", "--mix", "auto"}});
  expect_refused({"--tp", "2", "--mix", "d,d,d,b"},
                 {"layer 2 cannot be domain-parallel (d)", "fully connected", "use b or m"});
  expect_refused({"--tp", "2", "--strides", "2"}, {"2 convolutions and 1 strides"});
}

// The second rank has three of five rows.
TEST_F(TrainMix, DryRunsReportTheRankWithTheMostMemory) {
  model_ = {"--model", "convnet", "--filters", "4", "--strides", "1", "--widths", "8"};
  const Result dry = run(command({"--tp", "2", "--mix", "d,b,m", "--dry-run"}));
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_THAT(dry.out, HasSubstr("memory of rank 1 "));
}

// With only batch-parallel layers, gradients are also summed over the tensor ranks.
TEST_F(TrainMix, WholeMatricesCannotBelongToSeveralGroups) {
  for (const Words& more : {Words{}, Words{"--dry-run"}}) {
    Words words = {"--tp", "2", "--mix", "b,b,b", "--zero", "1", "--optimizer", "soap"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(command(words));
    EXPECT_NE(result.code, 0);
    EXPECT_THAT(result.err, ::testing::AllOf(HasSubstr("shards of several groups"),
                                             HasSubstr("use ZeRO stage 0")));
  }
}

TEST_F(TrainMix, ChosenMixIsPrintedAndCheckpointed) {
  const Result chosen = run(command({"--tp", "2", "--mix", "auto", "--checkpoint", path("run")}));
  ASSERT_EQ(chosen.code, 0) << chosen.err;
  EXPECT_THAT(chosen.out, ::testing::ContainsRegex("mix +[bm],[bm],[bm]: [0-9.]+ ms a step"));
  const Result again = run(command(
      {"--tp", "2", "--mix", "m,b,m", "--checkpoint", path("run"), "--resume", "--steps", "5"}));
  EXPECT_EQ(again.code, 0) << again.err;
  const Result told = run(command({"--tp", "2", "--mix", "b,m,b", "--print-config"}));
  EXPECT_EQ(Json::parse(told.out).at("parallel").at("mix"), "b,m,b");
  const Result dry = run(command({"--tp", "2", "--mix", "b,m,b", "--dry-run"}));
  EXPECT_EQ(dry.code, 0) << dry.err;
}

TEST_F(TrainMix, DeterministicModeHasTheSameBits) {
  const Process::Environment deterministic = {{"TUTTI_DETERMINISTIC", "1"}};
  const std::vector<double> alone = losses({"--ranks", "1"}, deterministic);
  EXPECT_EQ(losses({"--tp", "2", "--mix", "b,m,b"}, deterministic), alone);
  EXPECT_EQ(losses({"--tp", "4", "--mix", "b,b,b"}, deterministic), alone);
  EXPECT_EQ(losses({"--tp", "2"}, deterministic), alone);
}

TEST_F(TrainMix, MistakesAreNamed) {
  expect_refused({"--tp", "2", "--mix", "b,m"},
                 {"the mix has 2 layers, but the model has 3", "--mix b,m", "use 3 letters"});
  expect_refused({"--tp", "2", "--mix", "b,x,m"}, {"\"x\"", "--mix", "b (batch) or m (model)"});
  expect_refused({"--tp", "2", "--mix", "b,d,m"},
                 {"layer 1 cannot be domain-parallel", "use b or m"});
  expect_refused({"--tp", "2", "--mix", path("none")},
                 {"cannot read", "none", "No such file", "b,m,m,b"});
  expect_refused({"--tp", "2", "--mix", write("bad", "b\nm\nmm\n")}, {"\"mm\"", "bad, line 3"});
  expect_refused({"--tp", "2", "--mix", write("empty", "\n")}, {"no layers", "empty"});
  expect_refused({"--tp", "2", "--mix", write("large", std::string(2 << 20, ' '))},
                 {"large", "a layer mix"});
  expect_refused({"--mix", "b,m,b"}, {"--mix has no effect without --tp"});
  expect_refused({"--tp", "8"}, {"the 6 outputs of layer 1", "8 ranks", "use b for this layer"});
  expect_refused({"--tp", "2", "--sp"}, {"--sp has no effect without --model gpt2"});
  expect_refused({"--tp", "2", "--pp", "2"}, {"--tp together with --pp"});
  expect_refused({"--tp", "2", "--mix", "auto", "--plan", "auto"},
                 {"--plan auto excludes --mix auto"});
  const Result other = run({"train", "--data", write_text(), "--tp", "2", "--mix", "b,m"});
  EXPECT_THAT(other.err, HasSubstr("--mix has no effect without --model perceptron or convnet"));
}

}  // namespace
}  // namespace tutti::tool
