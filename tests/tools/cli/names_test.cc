// Tests option names and values of NCCL, MPI, torchrun and Megatron, as people type them.
#include <string>

#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Names : public Cli {
 protected:
  // Returns the standard output of a command that must succeed.
  std::string output_of(const Words& words) const {
    const Result result = run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  }
  std::string refusal_of(const Words& words) const {
    const Result result = run(words);
    EXPECT_NE(result.code, 0) << result.out;
    return result.err;
  }
};

TEST_F(Names, CollectivesAcceptNamesOfNcclAndMpi) {
  for (const std::string name : {"allreduce", "all-reduce", "AllReduce", "ALL_REDUCE"}) {
    EXPECT_THAT(output_of({"bench", name, "-n", "1", "--max", "8"}),
                HasSubstr("# tutti bench all_reduce: 1 ranks"));
    EXPECT_THAT(output_of({"explain", name, "-n", "2"}), HasSubstr("all_reduce of"));
  }
  for (const auto& [name, own] : {std::pair("bcast", "broadcast"),
                                  {"reducescatter", "reduce_scatter"},
                                  {"alltoall", "all_to_all"},
                                  {"allgatherv", "all_gatherv"},
                                  {"sendrecv", "send_recv"}}) {
    EXPECT_THAT(output_of({"bench", name, "-n", "1", "--max", "8"}), HasSubstr(own)) << name;
  }
}

TEST_F(Names, OperatorsAndTypesAreReadInAnyCase) {
  for (const std::string op : {"SUM", "ncclSum", "MPI_SUM"}) {
    EXPECT_THAT(
        output_of({"bench", "all_reduce", "-n", "1", "--max", "8", "--op", op, "--dtype", "FP16"}),
        HasSubstr("f16, sum"));
  }
}

TEST_F(Names, OptionsAcceptNamesOfNcclTestsAndMpirun) {
  const std::string table = output_of(
      {"bench", "all_reduce", "-np", "2", "-b", "8", "-e", "512", "-f", "8", "-o", "max"});
  EXPECT_THAT(table, AllOf(HasSubstr("2 ranks, f32, max"), HasSubstr("\n         512 "),
                           HasSubstr("\n# Avg bus bandwidth: "), Not(HasSubstr("4096"))));
  EXPECT_THAT(output_of({"bench", "all_reduce", "--np=2", "--max", "8"}), HasSubstr("2 ranks"));
}

TEST_F(Names, HintsOnceIfIterationsSeemToBeMeant) {
  const Result result = run({"bench", "all_reduce", "-n", "2", "-b", "8", "-e", "8"});
  EXPECT_EQ(result.code, 0);
  const std::string hint = "nccl-tests' -n is --iterations";
  const size_t first = result.err.find(hint);
  ASSERT_NE(first, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find(hint, first + 1), std::string::npos) << result.err;
}

TEST_F(Names, AProgramKeepsItsOwnOptions) {
  EXPECT_THAT(output_of({"run", "-np", "1", "echo", "-np", "3", "--num_layers"}),
              HasSubstr("-np 3 --num_layers"));
  EXPECT_THAT(output_of({"run", "-np", "1", "--", "echo", "-np", "3"}), HasSubstr("-np 3"));
}

TEST_F(Names, TrainingAcceptsNamesOfMegatron) {
  const std::string text = write_text();
  const std::string shown = output_of({"train",
                                       "--print-config",
                                       "--data",
                                       text,
                                       "--model",
                                       "gpt2",
                                       "--hidden-size",
                                       "64",
                                       "--ffn-hidden-size",
                                       "96",
                                       "--num_layers",
                                       "2",
                                       "--num-attention-heads",
                                       "2",
                                       "--seq-length",
                                       "32",
                                       "--global-batch-size",
                                       "16",
                                       "--micro-batch-size",
                                       "8",
                                       "--train-iters",
                                       "3",
                                       "--learning-rate",
                                       "0.5",
                                       "--lr-warmup-iters",
                                       "1",
                                       "--clip-grad",
                                       "2"});
  const Json config = Json::parse(shown);
  EXPECT_EQ(config["model"]["width"], 64);
  EXPECT_EQ(config["model"]["hidden"], 96);
  EXPECT_EQ(config["model"]["layers"], 2);
  EXPECT_EQ(config["model"]["context"], 32);
  EXPECT_EQ(config["training"]["batch"], 16);
  EXPECT_EQ(config["training"]["micro_batch"], 8);
  EXPECT_EQ(config["optimizer"]["lr"], 0.5);
  EXPECT_EQ(config["training"]["clip"], 2);
  // The option's former name.
  EXPECT_THAT(output_of({"train", "--print-config", "--data", text, "--hidden", "48"}),
              HasSubstr("48"));
}

TEST_F(Names, RunIsSavedAndLoadedAsInMegatron) {
  const std::string text = write_text();
  const Words small = {"train", "--data",        text, "--ranks",  "1", "--batch-size",
                       "4",     "--micro-batch", "4",  "--hidden", "8"};
  Words save = small;
  save.insert(save.end(), {"--save", path("run"), "--max-steps", "2"});
  output_of(save);
  Words load = small;
  load.insert(load.end(), {"--load", path("run"), "--max-steps", "4"});
  EXPECT_THAT(output_of(load), HasSubstr("step 3/4"));
  load.insert(load.end(), {"--save", path("elsewhere")});
  EXPECT_THAT(refusal_of(load), AllOf(HasSubstr("--save"), HasSubstr("--initial")));
}

TEST_F(Names, SuggestsTheNearestName) {
  EXPECT_THAT(refusal_of({"bench", "allredcue"}), HasSubstr("did you mean all_reduce?"));
  EXPECT_THAT(refusal_of({"bench", "all_reduce", "--op", "summ"}), HasSubstr("did you mean sum?"));
  EXPECT_THAT(refusal_of({"bench", "all_reduce", "--dtype", "bf61"}),
              HasSubstr("did you mean bf16?"));
  EXPECT_THAT(refusal_of({"bench", "all_reduce", "--algorithm", "rign"}),
              HasSubstr("did you mean ring?"));
  EXPECT_THAT(refusal_of({"draw", "knomail_4", "-n", "4"}), HasSubstr("did you mean knomial_4?"));
}

TEST_F(Names, PredictionsAreWrittenAsJson) {
  output_of({"explain", "allreduce", "-n", "4", "--bytes", "1M", "--json", path("prices")});
  const Json prices = Json::parse(read(path("prices")));
  EXPECT_EQ(prices["collective"], "all_reduce");
  EXPECT_EQ(prices["bytes"], 1 << 20);
  const Json& best = prices["algorithms"][0];
  EXPECT_EQ(best["algorithm"], prices["chosen"]);
  const double algbw = (1 << 20) / best["time_us"].get<double>() / 1000;
  EXPECT_NEAR(best["busbw_GBps"], algbw * 2 * 3 / 4, 1e-9);
}

TEST_F(Names, ProofOfTwoRanksHasTwoRanks) {
  EXPECT_THAT(output_of({"verify", "--max-ranks", "2", "--collective", "barrier"}),
              AllOf(HasSubstr("ranks 1,2 "), Not(HasSubstr("1024"))));
  EXPECT_THAT(output_of({"verify", "--max-ranks", "2", "--samples", "--collective", "barrier"}),
              HasSubstr("1024"));
}

}  // namespace
}  // namespace tutti::tool
