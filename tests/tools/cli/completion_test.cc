// Tests shell completion of commands, options and values.
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Completion : public Cli {
 protected:
  std::vector<std::string> offered(const Words& typed) const {
    Words words = {"completion", "words", "--"};
    words.insert(words.end(), typed.begin(), typed.end());
    const Result result = run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    std::vector<std::string> lines = split(result.out, '\n');
    std::erase(lines, "");
    return lines;
  }
};

TEST_F(Completion, OffersCommandsExceptInternalOnes) {
  EXPECT_THAT(offered({"exp"}), ElementsAre("explain", "export"));
  EXPECT_THAT(offered({""}), AllOf(Contains("bench"), Contains("train"), Not(Contains("agent"))));
  EXPECT_THAT(offered({"nothing", ""}), IsEmpty());
}

TEST_F(Completion, OffersOptionsOfTheCommand) {
  EXPECT_THAT(offered({"bench", "all_reduce", "--dt"}), ElementsAre("--dtype"));
  EXPECT_THAT(offered({"train", "--log"}), ElementsAre("--log-every"));
  EXPECT_THAT(offered({"train", "--col"}), IsEmpty());  // not in --help
}

TEST_F(Completion, OffersValues) {
  EXPECT_THAT(offered({"bench", "all_re"}), ElementsAre("all_reduce"));
  EXPECT_THAT(offered({"bench", "all_reduce", "--op", "max"}), ElementsAre("max", "maxloc"));
  // as bash splits words
  EXPECT_THAT(offered({"bench", "all_reduce", "--op", "=", "pr"}), Contains("prod"));
  // as zsh splits words
  EXPECT_THAT(offered({"bench", "all_reduce", "--op=pr"}), Contains("--op=prod"));
  EXPECT_THAT(offered({"train", "--model", "gpt"}), ElementsAre("gpt2"));
  EXPECT_THAT(offered({"train", "--recompute", "s"}), ElementsAre("selective"));
  EXPECT_THAT(offered({"draw", "recursive_d"}), Contains("recursive_doubling"));
}

TEST_F(Completion, OffersNothingWhereAnyWordIsValid) {
  EXPECT_THAT(offered({"train", "--data", ""}), IsEmpty());
  EXPECT_THAT(offered({"run", "-n", "2", "--", "./pro"}), IsEmpty());
}

TEST_F(Completion, ShellsRunThePrintedScript) {
  const std::string script =
      cat("source <(", tutti(), " completion bash); COMP_WORDS=(", tutti(),
          " bench all_reduce --alg); COMP_CWORD=3; _tutti ", tutti(), "; echo \"${COMPREPLY[*]}\"");
  const Result result = Process({"bash", "-c", script}).finish();
  EXPECT_EQ(result.out, "--algorithm\n") << result.err;
  EXPECT_THAT(run({"completion", "zsh"}).out, HasSubstr("compdef _tutti tutti"));
}

}  // namespace
}  // namespace tutti::tool
