// Tests the progress lines of `tutti train`.
#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

class ProgressLines : public Cli {
 protected:
  std::vector<std::string> steps_of(const Words& more) const {
    Words words = {"train", "--data", text_, "--ranks", "1", "--batch", "16", "--steps", "20"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    std::vector<std::string> lines;
    for (const std::string& line : split(result.out, '\n')) {
      if (line.find("step ") <= 1) lines.push_back(line);
    }
    return lines;
  }

 private:
  const std::string text_ = write_text();
};

TEST_F(ProgressLines, LinesAppearAtEachTenthOrAsRequested) {
  EXPECT_THAT(steps_of({}), SizeIs(10));
  const std::vector<std::string> lines = steps_of({"--log-every", "5"});
  EXPECT_THAT(lines, SizeIs(4));
  EXPECT_THAT(lines.front(), StartsWith("step 5/20  loss "));
  // Megatron's name; the last step is shown, too
  EXPECT_THAT(steps_of({"--log-interval=7"}), SizeIs(3));
}

TEST_F(ProgressLines, FitIn80Columns) {
  for (const std::string& line : steps_of({"--validate-every", "5", "--log-every", "1"})) {
    EXPECT_LE(line.size(), 80u) << line;
    EXPECT_THAT(line, HasSubstr("samples/s"));
  }
}

// On a terminal the lines of --log-every stay, and the others are overwritten.
TEST_F(ProgressLines, FitTheTerminal) {
  for (const std::string& line : steps_of({"--columns=40", "--log-every", "10"})) {
    for (std::string shown : split(line, '\r')) {
      if (const size_t end = shown.find("\033[K"); end != shown.npos) shown.resize(end);
      EXPECT_LE(shown.size(), 39u) << shown;
      EXPECT_THAT(shown, Not(HasSubstr("MFU")));
    }
  }
  EXPECT_THAT(steps_of({"--columns=40", "--log-every", "10"}), SizeIs(2));
}

}  // namespace
}  // namespace tutti::tool
