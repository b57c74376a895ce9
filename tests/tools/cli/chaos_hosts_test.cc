// Tests `tutti chaos --hosts`: network namespaces that are partitioned silently, or lost.
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/tools/cli/two_hosts.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class ChaosHosts : public TwoHosts {
 protected:
  // The command runs at least twice.
  Result chaos(const Words& options, const Words& command) const {
    Words words = {"chaos", "--hosts", a_ + "," + b_};
    words.insert(words.end(), options.begin(), options.end());
    words.push_back("--");
    words.insert(words.end(), command.begin(), command.end());
    return start(words, {{"TUTTI_RSH", "ip netns exec"}}).finish(3 * testing::kPatience);
  }
  // Returns the plan of one trial with these faults.
  std::string plan(const std::string& faults) const {
    return write("plan", cat(R"({"trials":[{"faults":[)", faults, "]}]}"));
  }
  std::string drop(const std::string& when) const {
    return cat(R"({"kind":"drop","hosts":[")", a_, R"(",")", b_, R"("],)", when, "}");
  }
  Words training() const {
    return {tutti(),
            "run",
            "--hosts",
            a_ + "," + b_,
            "-n",
            "4",
            "--min-ranks",
            "2",
            "--",
            tutti(),
            "train",
            "--data",
            text_,
            "--batch",
            "16",
            "--micro-batch",
            "4",
            "--hidden",
            "8",
            "--embedding",
            "4",
            "--validation-samples",
            "64",
            "--steps",
            "3000",
            "--min-ranks",
            "2"};
  }

  const std::string text_ = write_text();
};

TEST_F(ChaosHosts, AllSurviveAShortPartition) {
  const Result result = chaos({"--plan", plan(drop(R"("at_ms":300,"for_ms":700)")), "--same-output",
                               "validation loss +[0-9.]+", "--tolerance", "0.001"},
                              training());
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, ContainsRegex("planned +1 +0 +1 "));
}

TEST_F(ChaosHosts, OneHostSurvivesTheLossOfTheOther) {
  const std::string lose = cat(R"({"kind":"lose","hosts":[")", b_, R"("],"at_ms":700})");
  const Result result = chaos({"--plan", plan(lose), "--survives", "--same-output",
                               "validation loss +[0-9.]+", "--tolerance", "0.001"},
                              training());
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, ContainsRegex("planned +1 +0 +1 "));
}

// The command prints "finished" once in its first run and twice in the next one.
TEST_F(ChaosHosts, FindsTwoSidesThatContinue) {
  const std::string count = path("count");
  const std::string script =
      cat("echo x >> ", count, "; RANK=0 sleep 0.5; echo finished; [ $(grep -c x ", count,
          ") = 1 ] || echo finished");
  const Result result =
      chaos({"--plan", plan(drop(R"("at_ms":10,"for_ms":5000)")), "--same-output", "finished"},
            {"sh", "-c", script});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("'finished' occurs 2 times instead of 1"));
}

// During the partition the hosts send to an unused address; the second run waits to see the change.
TEST_F(ChaosHosts, PartitionLeavesNothingBehind) {
  const std::string ran = path("ran");
  const std::string silent =
      cat("ip -n ", a_, " neigh show 10.199.0.2 | grep -q 02:00:00:00:00:01");
  const std::string script =
      cat("[ -e ", ran, " ] || { : > ", ran, "; RANK=0 sleep 0.1; exit 0; }; ",
          "RANK=0 sh -c 'until ", silent, "; do :; done'");
  const Result result =
      chaos({"--plan", plan(drop(R"("at_ms":0)")), "--within", "10"}, {"sh", "-c", script});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(shell(cat("ip -n ", a_, " neigh show nud permanent")).out, "");
}

TEST_F(ChaosHosts, PlansAreDrawnFromASeed) {
  const auto drawn = [&](const std::string& seed) {
    const Result result = chaos({"--seed", seed, "--trials", "6", "--faults",
                                 "partition,pairs,lost", "--write-plan", path("drawn")},
                                {"sh", "-c", "RANK=0 sleep 0.5"});
    EXPECT_THAT(result.out, AllOf(ContainsRegex("partition +2 "), ContainsRegex("pairs +2 "),
                                  ContainsRegex("lost +2 ")))
        << result.err;
    return read(path("drawn"));
  };
  const std::string plans = drawn("7");
  EXPECT_EQ(drawn("7"), plans);
  EXPECT_NE(drawn("8"), plans);
  const Json all = Json::parse(plans);
  for (const Json& trial : all["trials"]) {
    const Json& fault = trial["faults"][0];
    if (trial["class"] == "lost") {
      EXPECT_EQ(fault["hosts"], Json({b_})) << "never the first";
    } else {
      EXPECT_EQ(fault["hosts"], Json({a_, b_}));
    }
  }
}

TEST_F(ChaosHosts, RefusesUnknownHosts) {
  const Words command = {"true"};
  const auto refuse = [&](const std::string& fault, const std::string& why) {
    const Result result = chaos({"--plan", plan(fault)}, command);
    EXPECT_NE(result.code, 0);
    EXPECT_THAT(result.err, HasSubstr(why));
  };
  refuse(R"({"kind":"drop","hosts":["x","y"],"at_ms":1})", "x is missing or repeated");
  refuse(R"({"kind":"drop","hosts":["x"],"at_ms":1})", "a drop strikes 2 hosts");
  refuse(R"({"kind":"lose","hosts":["x","y"],"at_ms":1})", "a lose strikes 1 hosts");
  refuse(R"({"kind":"drop","hosts":["x","y"],"message":1})", "at_ms");
  EXPECT_THAT(run({"chaos", "--faults", "lost", "--", "true"}).err, HasSubstr("--hosts"));
  EXPECT_THAT(run({"chaos", "--faults", "lost", "--hosts", "no-such-host,other", "--", "true"}).err,
              HasSubstr("no-such-host"));
}

}  // namespace
}  // namespace tutti::tool
