// Tests `tutti plot`: several runs' losses as a table and as a picture.
#include <string>

#include "base/text.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Plot : public Cli {
 protected:
  std::string slow() const {
    return write("slow.jsonl",
                 "{\"step\": 1, \"loss\": 5.5}\n"
                 "{\"step\": 2, \"loss\": 4.25, \"validation_loss\": 4.5}\n"
                 "{\"validation_loss\": 4.125, \"ranks\": 1}\n");
  }
  // Writes the log of a run that ended with a non-finite loss before its summary.
  std::string broken() const {
    return write("broken.jsonl",
                 "{\"step\": 1, \"loss\": 5.5}\n"
                 "{\"step\": 2, \"loss\": null}\n");
  }
};

TEST_F(Plot, PrintsEachRunsLastLosses) {
  const Result result = run({"plot", slow(), broken()});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(ContainsRegex("slow +2 +4\\.2500 +4\\.1250\n"),
                                ContainsRegex("broken +1 +5\\.5000 +-\n")));
}

TEST_F(Plot, DrawsAllRunsInOnePicture) {
  const std::string picture = path("losses.svg");
  const Result result = run({"plot", slow(), broken(), "--out", picture, "--title", "two's runs"});
  if (result.err.find("not installed") != std::string::npos) GTEST_SKIP() << result.err;
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(read(picture), AllOf(HasSubstr("<svg"), HasSubstr(">slow<"), HasSubstr(">broken<"),
                                   HasSubstr("two's runs"), Not(HasSubstr(">validation<"))));
}

TEST_F(Plot, DrawsLossesOverTime) {
  const std::string timed = write("timed.jsonl",
                                  "{\"step\": 1, \"loss\": 5.5, \"elapsed_s\": 0.25}\n"
                                  "{\"step\": 2, \"loss\": 4.5, \"elapsed_s\": 12.5}\n");
  const std::string picture = path("losses.svg");
  const Result result = run({"plot", timed, slow(), "--over", "time", "--out", picture});
  if (result.err.find("not installed") != std::string::npos) GTEST_SKIP() << result.err;
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(ContainsRegex("timed +2 +4\\.5000 +- +12\\.5\n"),
                                ContainsRegex("slow +2 +4\\.2500 +4\\.1250 +-\n")));
  EXPECT_THAT(read(picture), AllOf(HasSubstr(">timed<"), HasSubstr("seconds")));
}

TEST_F(Plot, DrawsOneRunAsTrainDoes) {
  const std::string picture = path("losses.svg");
  const Result result = run({"plot", slow(), "--out", picture});
  if (result.err.find("not installed") != std::string::npos) GTEST_SKIP() << result.err;
  EXPECT_THAT(read(picture), AllOf(HasSubstr(">training<"), HasSubstr(">validation<")));
}

TEST_F(Plot, SkipsAnIncompleteLastLine) {
  const std::string whole = read(slow());
  const Result result = run({"plot", write("slow.jsonl", whole + "{\"step\": 3, \"lo")});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, ContainsRegex("slow +2 +4\\.2500 +4\\.1250\n"));
}

TEST_F(Plot, RefusesOtherFiles) {
  const auto refused = [&](const std::string& file, const std::string& said) {
    const Result result = run({"plot", file});
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, AllOf(HasSubstr(file), HasSubstr(said)));
  };
  refused(write("text", "{\"step\": 1, \"loss\": 2}\nonce upon a time\n"),
          "line 2 is not a JSON object");
  refused(write("others", "{\"ranks\": 2}\n"), "no losses");
  refused(write("empty", ""), "no losses");
  refused(write("odd", "{\"step\": \"one\", \"loss\": 2}\n"), "line 1");
  refused(path("nowhere"), "nowhere");
}

}  // namespace
}  // namespace tutti::tool
