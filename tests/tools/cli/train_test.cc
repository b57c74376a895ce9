// Tests `tutti train`: equal losses for any number of ranks, and the errors for bad data.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Train : public Cli {
 protected:
  std::vector<double> losses(const std::string& text, int ranks, int batch = 96,
                             int seed = 1) const {
    const std::string file = path("losses");
    const Result result =
        run({"train", "--ranks", cat(ranks), "--data", text, "--steps", "20", "--batch", cat(batch),
             "--seed", cat(seed), "--hidden", "32", "--json", file});
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_THAT(result.err, IsQuiet());
    EXPECT_THAT(result.out, HasSubstr("validation loss"));
    std::vector<double> found;
    const std::vector<std::string> lines = split(read(file), '\n');
    EXPECT_EQ(lines.size(), 21u) << "a line each step, and a summary";
    for (const std::string& line : lines) {
      const Json object = Json::parse(line);
      if (!object.contains("step")) continue;
      EXPECT_EQ(object["step"], found.size() + 1);
      found.push_back(object["loss"]);
    }
    const Json summary = Json::parse(lines.back());
    EXPECT_GT(summary["validation_loss"], 0);
    EXPECT_EQ(summary["ranks"], ranks);
    return found;
  }

  // Expects an error that is common to all ranks and is reported once, before any rank starts.
  void expect_refused(const std::string& data, const std::vector<std::string>& said) const {
    expect_refused(run({"train", "--ranks", "2", "--steps", "3", "--data", data}), said);
  }
  static void expect_refused(const Result& result, const std::vector<std::string>& said) {
    EXPECT_THAT(result.code, ::testing::AnyOf(1, 2));
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    for (const std::string& part : said) EXPECT_THAT(result.err, HasSubstr(part));
  }
};

TEST_F(Train, LossesDoNotDependOnTheRanks) {
  const std::string text = write_text();
  const std::vector<double> alone = losses(text, 1);
  ASSERT_EQ(alone.size(), 20u);
  EXPECT_NEAR(alone.front(), std::log(256), 0.2) << "nothing is known at first";
  EXPECT_LT(alone.back(), alone.front() - 1) << "it learns";
  for (const int ranks : {2, 3, 4}) {
    const std::vector<double> shared = losses(text, ranks);
    ASSERT_EQ(shared.size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_NEAR(shared[i], alone[i], 1e-5 * alone[i]) << ranks << " ranks, step " << i + 1;
    }
  }
}

TEST_F(Train, BatchThatDoesNotDivideChangesNothing) {
  const std::string text = write_text();
  const std::vector<double> alone = losses(text, 1, 97);
  const std::vector<double> shared = losses(text, 4, 97);
  ASSERT_EQ(shared.size(), alone.size());
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(shared[i], alone[i], 1e-5 * alone[i]);
}

TEST_F(Train, OnlyTheSeedIsRandom) {
  const std::string text = write_text();
  const std::vector<double> first = losses(text, 2);
  EXPECT_EQ(losses(text, 2), first);
  EXPECT_NE(losses(text, 2, 96, 2), first);
}

TEST_F(Train, DirectoryIsRead) {
  std::filesystem::create_directory(path("texts"));
  std::filesystem::rename(write_text(), path("texts/a"));
  EXPECT_EQ(losses(path("texts"), 2), losses(path("texts/a"), 2));
}

TEST_F(Train, BadDataIsRefused) {
  expect_refused(path("absent"), {"cannot read the text", path("absent"), "No such file"});
  expect_refused(write("empty", ""), {"is not text", path("empty"), "is empty"});
  expect_refused(write("tiny", "hi\n"), {"too short", "3 bytes", path("tiny")});
  expect_refused("/dev/null", {"/dev/null", "neither a file nor a directory"});
  std::filesystem::create_directory(path("binary"));
  write("binary/file", std::string(1000, '\0'));
  expect_refused(path("binary"), {"no text found in the directory", path("binary")});
  // The file cannot be read from its start, not even by root.
  expect_refused("/proc/self/mem", {"cannot read the text /proc/self/mem", "Input/output error"});
}

TEST_F(Train, DataWithoutPermissionIsRefused) {
  const std::string text = write_text();
  ASSERT_EQ(::chmod(text.c_str(), 0), 0);
  // Root may read everything, unless it drops its capabilities.
  Words command = {"setpriv", "--inh-caps=-all", "--bounding-set=-all"};
  if (::geteuid() != 0) command.clear();
  for (const std::string& word :
       Words{tutti(), "train", "--ranks", "2", "--steps", "3", "--data", text}) {
    command.push_back(word);
  }
  const Result result = start_program(command).finish();
  if (::geteuid() == 0 && result.err.starts_with("setpriv: ")) GTEST_SKIP() << result.err;
  expect_refused(result, {"cannot read the text", text, "Permission denied"});
}

TEST_F(Train, WrongOptionsAreRefused) {
  const std::string text = write_text();
  const auto refused = [&](Words more, const std::vector<std::string>& said) {
    Words arguments = {"train", "--data", text, "--ranks", "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_refused(run(arguments), said);
  };
  refused({"--json", "/nonexistent/x"}, {"cannot write /nonexistent/x", "No such file", "remedy"});
  refused({"--steps", "0"}, {"steps", "0"});
  refused({"--batch", "-1"}, {"batch", "-1"});
  refused({"--optimizer", "adam"}, {"--optimizer", "adam", "adamw", "sgd"});
  refused({"--hiden", "8"}, {"--hiden", "--help"});
  expect_refused(run({"train", "--ranks", "2"}), {"--data is required"});
}

}  // namespace
}  // namespace tutti::tool
