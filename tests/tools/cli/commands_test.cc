// Tests `tutti verify`, `tutti info`, and settings and errors that all commands have in common.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "base/settings.h"
#include "base/text.h"
#include "tests/support/leftovers.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;

class Commands : public Cli {};

std::string last_line(const std::string& text) {
  const std::vector<std::string> lines = split(text, '\n');
  return lines.empty() ? "" : lines.back();
}

TEST_F(Commands, VerifyProvesEveryAlgorithm) {
  const Result result = run({"verify", "--max-ranks", "16", "--no-samples"});
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_THAT(result.err, IsQuiet());
  const std::string last = last_line(result.out);
  EXPECT_THAT(last, MatchesRegex("[0-9]+ programs proved"));
  EXPECT_GE(std::stoi(last), 16 * 7) << "16 numbers of ranks, at least";
  for (const char* algorithm : {"all_reduce .*ring", "all_reduce .*double_binary_tree",
                                "all_gather .*ring", "reduce_scatter .*ring", "barrier .*dissem"}) {
    EXPECT_THAT(result.out, ::testing::ContainsRegex(algorithm));
  }
  const Result more = run({"verify", "--max-ranks", "17", "--no-samples"});
  EXPECT_GT(std::stoi(last_line(more.out)), std::stoi(last));
}

TEST_F(Commands, VerifyListsTheKnownAlgorithms) {
  const Result result = run({"verify", "--algorithm", "rign"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("\"rign\""), HasSubstr("all_reduce ring")));
  EXPECT_EQ(run({"verify", "--max-ranks", "0"}).code, 1);
}

TEST_F(Commands, VerifySaysWhyNothingIsProved) {
  const Result result = run({"verify", "--algorithm", "swing", "--ranks", "5"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, AllOf(HasSubstr("all_reduce swing: "), HasSubstr("even"),
                                HasSubstr("5 ranks"), HasSubstr("--ranks")));
  const Result all = run({"verify", "--collective", "all_reduce", "--ranks", "5"});
  EXPECT_EQ(all.code, 0);
  EXPECT_THAT(all.out, AllOf(HasSubstr("not proved: it requires an even"), HasSubstr("ranks 5")));
}

// Tests the check for leftovers that every test of the program makes at its end.
TEST_F(Commands, LeftoversAreFilesWithTuttisName) {
  const std::string own = cat("/dev/shm/tutti-", ::getpid());
  const std::string strange = cat("/dev/shm/strange-", ::getpid());
  std::ofstream(own).flush();
  std::ofstream(strange).flush();
  const std::set<std::string> found = testing::files_in_dev_shm();
  ::unlink(own.c_str());
  ::unlink(strange.c_str());
  EXPECT_TRUE(found.contains(cat("tutti-", ::getpid())));
  EXPECT_FALSE(found.contains(cat("strange-", ::getpid())));
}

TEST_F(Commands, InfoShowsSettingsWithTheirOrigin) {
  const Result result = run({"info"}, {{"TUTTI_TIMEOUT", "7"}, {"TUTTI_TOKEN", "open sesame"}});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.err, IsQuiet());
  EXPECT_THAT(result.out, HasSubstr("TUTTI_TIMEOUT = 7  [environment]"));
  EXPECT_THAT(result.out, HasSubstr("TUTTI_TRANSPORT = auto  [default]"));
  EXPECT_THAT(result.out, Not(HasSubstr("open sesame")));
  for (const SettingInfo& setting : all_settings()) {
    if (setting.internal) continue;
    EXPECT_THAT(result.out, HasSubstr(cat(setting.name, " = ")));
  }
  const Json document = Json::parse(run({"info", "--json", "-"}, {{"TUTTI_TIMEOUT", "7"}}).out);
  const auto& settings = document["settings"];
  const auto timeout = std::ranges::find_if(
      settings, [](const Json& setting) { return setting["name"] == "TUTTI_TIMEOUT"; });
  ASSERT_NE(timeout, settings.end());
  EXPECT_EQ((*timeout)["value"], "7");
  EXPECT_EQ((*timeout)["origin"], "environment");
  EXPECT_EQ((*timeout)["default"], "300");
}

TEST_F(Commands, InfoReportsUnencryptedTraffic) {
  const std::string by_default = run({"info"}).out;
  EXPECT_THAT(by_default, HasSubstr("data over TCP: unencrypted (TUTTI_ENCRYPT=auto); accidental "
                                    "corruption is detected between hosts"));
  EXPECT_EQ(by_default.find("unencrypted (TUTTI"), by_default.rfind("unencrypted (TUTTI"));
  const std::string unchecked = run({"info"}, {{"TUTTI_INTEGRITY", "off"}}).out;
  EXPECT_THAT(unchecked, HasSubstr("by TCP's 16-bit checksum only (TUTTI_INTEGRITY=off)"));
  const std::string encrypted = run({"info"}, {{"TUTTI_ENCRYPT", "on"}}).out;
  EXPECT_THAT(encrypted, HasSubstr("data over TCP: encrypted and authenticated"));
  EXPECT_THAT(encrypted, Not(HasSubstr("unencrypted (TUTTI")));
}

TEST_F(Commands, WarnOnceAboutAMisspeltSetting) {
  const Process::Environment environment = {{"TUTTI_TRANPORT", "tcp"}};
  for (const Words& arguments :
       {Words{"info"}, Words{"bench", "all_reduce", "-n", "3", "--max", "64"},
        Words{"run", "-n", "2", "--", tutti(), "bench", "all_reduce", "--max", "64"}}) {
    const Result result = run(arguments, environment);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr("warning"), HasSubstr("TUTTI_TRANPORT"),
                                  HasSubstr("did you mean TUTTI_TRANSPORT?")));
  }
}

TEST_F(Commands, RefuseAWrongSettingOnce) {
  const Result result = run({"bench", "all_reduce", "-n", "3"}, {{"TUTTI_TRANSPORT", "pigeon"}});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("TUTTI_TRANSPORT='pigeon'"), HasSubstr("auto|shm|tcp")));
  const Result spares = run({"bench", "all_reduce", "-n", "3"}, {{"TUTTI_SPARES", "99"}});
  EXPECT_EQ(std::ranges::count(spares.err, '\n'), 1) << spares.err;
  EXPECT_THAT(spares.err, AllOf(HasSubstr("TUTTI_SPARES=99"), HasSubstr("unset TUTTI_SPARES")));
}

TEST_F(Commands, RefuseStandardOutputForFiles) {
  for (const Words& arguments :
       {Words{"bench", "all_reduce", "-n", "2", "--max", "64", "--json", "-"},
        Words{"draw", "ring", "-n", "4", "--json", "-"}}) {
    const Result result = run(arguments);
    EXPECT_NE(result.code, 0);
    EXPECT_THAT(result.err, HasSubstr("'-' is not supported")) << arguments[0];
  }
  EXPECT_FALSE(std::filesystem::exists("-"));
}

// `tutti info` runs despite wrong settings, because it exists to find them.
TEST_F(Commands, InfoMarksWrongSettings) {
  for (const auto& [name, value] : Process::Environment{
           {"TUTTI_TIMEOUT", "abc"}, {"TUTTI_TRANSPORT", "x"}, {"TUTTI_LOG", "loud"}}) {
    const Result result = run({"info"}, {{name, value}});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr(cat(name, " = ", value, "  [environment]  WRONG: ")));
  }
}

TEST_F(Commands, EveryHelpHasAnExample) {
  for (const std::string command :
       {"", "run", "chaos", "bench", "verify", "tokenize", "train", "plot", "info"}) {
    SCOPED_TRACE(command);
    const Result result = run(command.empty() ? Words{"--help"} : Words{command, "--help"});
    EXPECT_EQ(result.code, 0);
    EXPECT_THAT(result.err, IsQuiet());
    const size_t example = result.out.find("Example");
    ASSERT_NE(example, std::string::npos) << result.out;
    EXPECT_THAT(result.out.substr(example), HasSubstr("tutti " + command));
  }
}

TEST_F(Commands, AnUnknownCommandIsRefused) {
  const Result result = run({"benhc", "all_reduce"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("benhc"), HasSubstr("tutti --help")));
}

}  // namespace
}  // namespace tutti::tool
