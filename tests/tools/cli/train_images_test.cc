// Tests `tutti train` on images that are divided over a grid of ranks.
#include <sstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::HasSubstr;

class TrainImages : public Cli {
 protected:
  // Returns the losses of a small run's steps from its log.
  std::vector<double> losses(const Words& more) const {
    Words words = {"train",         "--data",    "shapes:18x14:64", "--batch", "8",
                   "--micro-batch", "4",         "--widths",        "4",       "6",
                   "--json",        path("log"), "--log-every",     "1"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    std::istringstream file(read(path("log")));
    std::vector<double> found;
    for (std::string line; std::getline(file, line);) {
      const Json json = Json::parse(line);
      if (json.contains("loss")) found.push_back(json.at("loss"));
    }
    return found;
  }
  static void expect_near(const std::vector<double>& found, const std::vector<double>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-3) << i;
  }
};

TEST_F(TrainImages, LossesDoNotDependOnTheGrid) {
  for (const Words& model :
       {Words{"--model", "unet"}, Words{"--model", "resnet", "--blocks", "1", "1"}}) {
    const auto with = [&](Words more) {
      more.insert(more.end(), model.begin(), model.end());
      more.insert(more.end(), {"--steps", "6"});
      return losses(more);
    };
    const std::vector<double> whole = with({"--ranks", "1"});
    expect_near(with({"--ranks", "2", "--spatial", "2x1"}), whole);
    expect_near(with({"--ranks", "4", "--spatial", "2x2"}), whole);
    expect_near(with({"--ranks", "4", "--spatial", "1x2", "--sync-bn", "--zero", "2"}),
                with({"--ranks", "2", "--sync-bn"}));
  }
}

TEST_F(TrainImages, RunContinuesOnAnotherGrid) {
  const auto with = [&](const std::string& directory, const char* steps, Words more) {
    more.insert(more.end(), {"--model", "unet", "--checkpoint", path(directory), "--steps", steps,
                             "--lr-schedule", "constant"});
    return losses(more);
  };
  const std::vector<double> whole = with("whole", "8", {"--ranks", "1"});
  with("cut", "4", {"--ranks", "2", "--spatial", "2x1"});
  // The resumed run also continues the log.
  expect_near(with("cut", "8", {"--ranks", "3", "--spatial", "1x3", "--resume"}), whole);
}

TEST_F(TrainImages, PlansKeepTheGrid) {
  const std::vector<double> planned = losses(
      {"--model", "unet", "--steps", "2", "--ranks", "4", "--spatial", "2x1", "--plan", "auto"});
  expect_near(planned, losses({"--model", "unet", "--steps", "2", "--ranks", "1"}));
}

TEST_F(TrainImages, WrongGridsAreRefused) {
  const auto refusal = [&](const Words& more) {
    Words words = {"train", "--steps", "1"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_NE(result.code, 0);
    return result.err;
  };
  const Words images = {"--model", "unet", "--data", "shapes:18x14:64", "--ranks", "2"};
  const auto of_images = [&](const std::string& grid) {
    Words words = images;
    words.insert(words.end(), {"--spatial", grid});
    return refusal(words);
  };
  for (const char* grid : {"2", "2x", "x2", "0x2", "-1x2", "2xx1", "2x1x1", "1025x1", ""}) {
    EXPECT_THAT(of_images(grid), HasSubstr("[--spatial]")) << grid;
  }
  EXPECT_THAT(of_images("3x1"), HasSubstr("2 ranks do not form a grid of 3 x 1"));
  EXPECT_THAT(refusal({"--data", write_text(), "--ranks", "2", "--spatial", "2x1"}),
              HasSubstr("model mlp does not support spatial parallelism"));
  EXPECT_THAT(refusal({"--model", "unet", "--data", "shapes:1x1"}), HasSubstr("[--data]"));
  Words huge = {"--tp", "4096", "--spatial", "1024x1024"};
  huge.insert(huge.end(), images.begin(), images.end() - 2);
  EXPECT_THAT(refusal(huge), HasSubstr("ranks"));
  Words measured = {"--spatial", "2x1", "--cut", "measured"};
  measured.insert(measured.end(), images.begin(), images.end());
  EXPECT_THAT(refusal(measured), HasSubstr("--cut measured excludes --spatial"));
  Words late = images;
  late.insert(late.end(), {"--spatial", "2x1", "--sync", "local:2"});
  EXPECT_THAT(refusal(late), HasSubstr("--spatial"));
}

}  // namespace
}  // namespace tutti::tool
