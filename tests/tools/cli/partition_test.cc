// Tests `tutti partition`: the assignment of layers to ranks for a measured or given profile.
#include <fstream>
#include <string>

#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Convolutions with all the work, and a layer with all the parameters.
constexpr const char* kProfile = R"({
  "format": "tutti-profile", "version": 1, "model": "by hand", "samples": 10,
  "layers": [
    {"name": "conv1", "forward_s": 5, "backward_s": 10, "activation_bytes": 30720,
     "parameter_bytes": 1024},
    {"name": "conv2", "forward_s": 5, "backward_s": 25, "activation_bytes": 2048,
     "parameter_bytes": 1024},
    {"name": "fc", "forward_s": 3, "backward_s": 6, "activation_bytes": 1024,
     "parameter_bytes": 102400}
  ]
})";

class PartitionCommand : public Cli {
 protected:
  std::string profile() const {
    std::ofstream(path("profile.json")) << kProfile;
    return path("profile.json");
  }
};

TEST_F(PartitionCommand, ReadsAProfile) {
  const Result result = run({"partition", "--profile", profile(), "--ranks-per-node", "4",
                             "--bandwidth-inside", "1K", "--json", path("json")});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, IsQuiet());
  EXPECT_THAT(result.out, AllOf(HasSubstr("by hand: 3 layers, micro-batches of 10"),
                                HasSubstr("conv1 to conv2"), HasSubstr("2 micro-batches in flight"),
                                HasSubstr("2 stages on 4 of 4 ranks"),
                                HasSubstr("does not run stages of 3 and 1 replicas"),
                                HasSubstr("tutti train ... -n 2 --dp 1 --pp 2 --cut 0,2")));
  const Json document = Json::parse(read(path("json")));
  const Json& found = document["partition"];
  ASSERT_THAT(found["stages"], SizeIs(2));
  EXPECT_EQ(found["stages"][0]["ranks"], Json({0, 1, 2}));
  EXPECT_EQ(found["stages"][0]["end"], 2);
  EXPECT_EQ(found["stages"][0]["time_s"], 15);
  EXPECT_EQ(found["stages"][0]["boundary_s"], 4);
  EXPECT_EQ(found["stages"][1]["ranks"], Json({3}));
  EXPECT_EQ(found["samples_per_s"], 10.0 / 15);
  EXPECT_EQ(document["data_parallel"]["time_s"], 2 * 3 * 102.0 / 4);
  EXPECT_EQ(document["pipeline"]["time_s"], 45) << "conv1's activations would take 60";
  EXPECT_EQ(document["even"]["time_s"], 45) << "conv1 and conv2 | fc";
  EXPECT_EQ(document["profile"], Json::parse(kProfile));
}

TEST_F(PartitionCommand, ConsidersNodesLatencyAndMemory) {
  const Words command = {"partition",           "--profile", profile(), "--nodes",   "2",
                         "--bandwidth-between", "1K",        "--json",  path("json")};
  const auto partition = [&](const Words& more) {
    Words words = command;
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return Json::parse(read(path("json")));
  };
  Json found = partition({})["partition"];
  EXPECT_EQ(found["time_s"], 45) << "conv1 and conv2 | fc";
  EXPECT_EQ(found["stages"][0]["boundary_s"], 4);
  found = partition({"--latency-between", "3e7"})["partition"];
  EXPECT_EQ(found["time_s"], 54) << "all on a node: less than 2 (30 + 2) s between two";
  EXPECT_EQ(found["ranks"], 1);
  const Json small = partition({"--latency-between", "3e7", "--parameter-memory", "101K"});
  EXPECT_EQ(small["partition"]["time_s"], 64) << "it does not fit on one";
  EXPECT_EQ(small["data_parallel"], Json());
}

TEST_F(PartitionCommand, ProfilesAModel) {
  const Words cluster = {
      "--nodes", "2", "--ranks-per-node", "2", "--bandwidth-inside", "100G", "--bandwidth-between",
      "10G"};
  const auto partition = [&](Words words, const Words& more) {
    words.insert(words.begin(), "partition");
    words.insert(words.end(), cluster.begin(), cluster.end());
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--json", path("json")});
    const Result result = run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, IsQuiet());
    return Json::parse(read(path("json")));
  };
  const Words gpt = {"--model",   "gpt2", "--layers", "3", "--heads",       "2", "--width", "32",
                     "--context", "16",   "--runs",   "2", "--micro-batch", "3"};
  for (const Words& model :
       {gpt, Words{"--model", "mlp", "--layers", "2", "--runs", "1"},
        Words{"--model", "resnet", "--micro-batch", "2", "--runs", "1", "--precision", "bf16"}}) {
    SCOPED_TRACE(model[1]);
    const Json document = partition(model, {"--save-profile", path("profile")});
    EXPECT_EQ(document["profile"], Json::parse(read(path("profile"))));
    const Json& layers = document["profile"]["layers"];
    EXPECT_GE(layers.size(), 4u);
    for (const Json& layer : layers) EXPECT_GT(layer["forward_s"], 0) << layer;
    const double best = document["partition"]["time_s"];
    EXPECT_GT(best, 0);
    EXPECT_LE(best, document["data_parallel"]["time_s"]);
    EXPECT_LE(best, document["pipeline"]["time_s"]);
    EXPECT_EQ(document["partition"]["stages"].back()["end"], layers.size());
    // The saved profile gives the same answer.
    EXPECT_EQ(partition({"--profile", path("profile")}, {}), document);
  }
  const Json document = partition(gpt, {});
  EXPECT_EQ(document["profile"]["samples"], 3);
  EXPECT_EQ(document["profile"]["layers"][1]["activation_bytes"], 3 * 16 * 32 * 4);
}

TEST_F(PartitionCommand, NamesMistakes) {
  const auto expect_refused = [&](const Words& more, const std::string& said) {
    Words words = {"partition"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_NE(result.code, 0);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, HasSubstr(said));
  };
  expect_refused({"--nodes", "2"}, "--bandwidth-between");
  expect_refused({"--ranks-per-node", "2"}, "--bandwidth-inside");
  expect_refused({"--nodes", "0"}, "--nodes");
  expect_refused({"--nodes", "2", "--bandwidth-between", "fast"}, "'fast' is not a size");
  expect_refused({"--nodes", "2", "--bandwidth-between", "0"}, "--bandwidth-between");
  expect_refused({"--micro-batch", "0"}, "--micro-batch");
  expect_refused({"--model", "gpt2", "--heads", "5"}, "5");
  expect_refused({"--profile", path("none")}, path("none"));
  expect_refused({"--profile", profile(), "--layers", "3"}, "both --profile and --layers");
  expect_refused({"--profile", profile(), "--parameter-memory", "99K"}, "layer fc is the largest");
  expect_refused({"--profile", profile(), "--json", "/nowhere/at/all"}, "/nowhere/at/all");
  std::ofstream(path("other.json")) << "{}";
  expect_refused({"--profile", path("other.json")}, "other.json is not a profile");
}

}  // namespace
}  // namespace tutti::tool
