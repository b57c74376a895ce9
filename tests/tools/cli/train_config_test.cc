// Tests a run's configuration: files, --set and options, and the errors in them.
#include <algorithm>
#include <regex>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TrainConfig : public Cli {
 protected:
  const std::string text_ = write_text();
  const std::string file_ = write("run.json", cat(R"({
  "model": {"kind": "gpt2", "layers": 2, "heads": 2, "width": 32, "context": 16},
  "data": {"files": [")",
                                                  text_, R"("]},
  "optimizer": {"name": "adamw", "lr": 0.002, "warmup": 1},
  "training": {"steps": 4, "batch": 4, "micro_batch": 2}
})"));

  Words configured(const Words& more) const {
    Words words = {"train", "--config", file_, "--ranks", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Json printed(Words words) const {
    words.push_back("--print-config");
    const Result result = run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return Json::parse(result.out);
  }
  std::vector<Json> steps_of(Words words) const {
    words.insert(words.end(), {"--json", path("steps.jsonl")});
    const Result result = run(words, {{"TUTTI_DETERMINISTIC", "1"}});
    EXPECT_EQ(result.code, 0) << result.err;
    std::vector<Json> steps;
    for (const std::string& line : split(read(path("steps.jsonl")), '\n')) {
      if (line.starts_with("{\"step\"")) steps.push_back(Json::parse(line));
    }
    return steps;
  }
  std::vector<double> losses_of(const Words& words) const {
    std::vector<double> losses;
    for (const Json& step : steps_of(words)) losses.push_back(step["loss"]);
    return losses;
  }
  void expect_refused(const Words& words, const std::vector<std::string>& said) const {
    const Result result = run(words);
    EXPECT_NE(result.code, 0);
    for (const std::string& part : said) EXPECT_THAT(result.err, HasSubstr(part));
  }
};

TEST_F(TrainConfig, KeepsEveryDigitOfAFraction) {
  const Words ranks = {"--ranks", "2", "--compression", "topk:0.0123456789"};
  EXPECT_EQ(printed(configured(ranks))["training"]["compression"], "topk:0.0123456789");
}

// A dedicated server computes no micro-batches.
TEST_F(TrainConfig, MicroBatchesAreThoseOfWorkers) {
  const std::string text = write_text();
  const Json settled = printed({"train", "--data", text, "--ranks", "4", "--sync", "ps:1",
                                "--accumulate", "2", "--micro-batch", "8"});
  EXPECT_EQ(settled["training"]["batch"], 3 * 2 * 8);
}

TEST_F(TrainConfig, FileEqualsOptions) {
  const Json from_file = printed(configured({}));
  EXPECT_EQ(from_file["optimizer"]["lr"], 0.002);
  EXPECT_EQ(from_file["optimizer"]["weight_decay"], 0.1) << "as suits the model";
  EXPECT_EQ(from_file["training"]["clip"], 1);
  const Json from_options =
      printed({"train",         "--model",  "gpt2",      "--layers", "2",      "--heads", "2",
               "--width",       "32",       "--context", "16",       "--data", text_,     "--lr",
               "0.002",         "--warmup", "1",         "--steps",  "4",      "--batch", "4",
               "--micro-batch", "2",        "--ranks",   "1"});
  EXPECT_EQ(from_options, from_file);
}

TEST_F(TrainConfig, PrintedConfigurationMakesTheSameRun) {
  for (const Words& more :
       {Words{}, Words{"--optimizer", "muon", "--precision", "f16"},
        Words{"--epochs", "0.01", "--rate-scaling", "sqrt", "--base-batch", "2"},
        Words{"--micro-batches", "3", "--lr-schedule", "linear", "--min-lr", "1e-5", "--clip", "0"},
        Words{"--model", "mlp", "--no-overlap", "--recompute", "full", "--virtual", "1"}}) {
    const Json first = printed(configured(more));
    const std::string again = write("again.json", first.dump(1));
    EXPECT_EQ(printed({"train", "--config", again, "--ranks", "1"}), first);
    if (more.empty()) {
      const std::vector<double> losses = losses_of(configured(more));
      EXPECT_EQ(losses.size(), 4u);
      EXPECT_EQ(losses_of({"train", "--config", again, "--ranks", "1"}), losses);
    }
  }
}

// A batch of 4 with rates tuned for a batch of 1: twice the rate, twice the decay.
TEST_F(TrainConfig, RateAndWeightDecayGrowWithTheBatch) {
  const Json optimizer =
      printed(configured({"--rate-scaling", "sqrt", "--decay-scaling", "sqrt", "--base-batch", "1",
                          "--weight-decay", "0.25"}))["optimizer"];
  EXPECT_DOUBLE_EQ(optimizer["lr"].get<double>(), 0.004);
  EXPECT_DOUBLE_EQ(optimizer["weight_decay"].get<double>(), 0.5);
}

TEST_F(TrainConfig, ConfigurationOfACheckpointMakesTheSameRun) {
  const std::vector<double> losses =
      losses_of(configured({"--checkpoint", path("a"), "--dropout", "0.1"}));
  ASSERT_EQ(run({"checkpoint", path("a"), "--json", path("shown.json")}).code, 0);
  const Json shown = Json::parse(read(path("shown.json")));
  const std::string kept = write("kept.json", shown["steps"].back()["configuration"].dump(1));
  EXPECT_EQ(losses_of({"train", "--config", kept, "--ranks", "1", "--checkpoint", path("b")}),
            losses);
}

TEST_F(TrainConfig, LaterValueCounts) {
  const auto rate = [&](const Words& more) {
    return printed(configured(more))["optimizer"]["lr"].get<double>();
  };
  EXPECT_EQ(rate({"--lr", "0.1"}), 0.1);
  EXPECT_EQ(rate({"--lr", "0.1", "--lr", "0.2"}), 0.2);
  EXPECT_EQ(rate({"--lr", "0.1", "--set", "optimizer.lr=0.3"}), 0.3);
  EXPECT_EQ(rate({"--set", "optimizer.lr=0.3", "--lr", "0.1"}), 0.1);
  EXPECT_EQ(rate({"--set", "optimizer.lr=null"}), 0.001) << "as by default";
  const Json other = printed(configured(
      {"--set", "model.layers=3", "model.tied=false", "--epochs", "1", "--optimizer", "sgd"}));
  EXPECT_EQ(other["model"]["layers"], 3);
  EXPECT_EQ(other["model"]["tied"], false);
  EXPECT_FALSE(other["training"].contains("steps"));
  EXPECT_EQ(other["optimizer"]["momentum"], 0.9);
  EXPECT_FALSE(other["optimizer"].contains("beta1"));
}

TEST_F(TrainConfig, NullInAFileIsIgnored) {
  const auto of_file = [&](const std::string& more) {
    const std::string file =
        write("nulls.json", cat(R"({"data": {"files": [")", text_, R"("]})", more, "}"));
    return printed({"train", "--config", file, "--ranks", "1"});
  };
  const Json without = of_file("");
  EXPECT_EQ(of_file(R"(, "optimizer": {"lr": null, "weight_decay": null},
                         "training": {"batch": null, "micro_batch": null, "clip": null},
                         "model": {"layers": null}, "output": {"validation_samples": null})"),
            without);
  EXPECT_GT(without["training"]["batch"], 32);
}

TEST_F(TrainConfig, HelpShowsTheDefaultsOfRuns) {
  // Joins the lines, because descriptions wrap.
  const std::string help =
      std::regex_replace(run({"train", "--help"}).out, std::regex("\\n? +"), " ");
  for (const char* told :
       {"0.99 (0.95 for transformers) for adamw, adamw8bit, muon; 0.99 for lamb; 0.95 for soap)",
        "0.01 (0.1 for transformers) for adamw, adamw8bit, muon, soap; 0 for sgd, adafactor;",
        "image models (resnet, unet, perceptron, convnet)"}) {
    EXPECT_THAT(help, HasSubstr(told));
  }
  for (const std::string model : {"mlp", "llama"}) {
    const Json all = printed({"train", "--data", text_, "--model", model, "--ranks", "1"});
    EXPECT_EQ(all["optimizer"]["beta2"], model == "mlp" ? 0.99 : 0.95);
    EXPECT_EQ(all["optimizer"]["weight_decay"], model == "mlp" ? 0.01 : 0.1);
  }
}

TEST_F(TrainConfig, RatesAndEpsilonAreUsed) {
  const std::vector<Json> steps = steps_of(configured({"--min-lr", "0.0005", "--eps", "1e-3"}));
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_NEAR(steps.back()["lr"].get<double>(), 0.0005, 1e-12);
  EXPECT_NE(steps.back()["loss"], steps_of(configured({"--min-lr", "0.0005"})).back()["loss"]);
  expect_refused(configured({"--min-lr", "0.5"}), {"--min-lr", "0.002"});
  expect_refused(configured({"--min-lr", "0.0005", "--final-fraction", "0.5"}), {"--min-lr"});
  expect_refused(configured({"--optimizer", "sgd", "--eps", "1"}), {"--eps", "adamw"});
}

TEST_F(TrainConfig, MistakesAreNamed) {
  const auto refused = [&](const std::string& json, const std::vector<std::string>& said) {
    const std::string file = write("bad.json", json);
    std::vector<std::string> all = said;
    all.push_back(file);
    expect_refused({"train", "--config", file, "--data", text_}, all);
  };
  refused(R"({"checkpoint": {"every": 2}})",
          {"checkpoint.every", "no effect without --checkpoint"});
  refused(R"({"training": {"compression_rank": 3}})", {"compression_rank", "powersgd"});
  refused(R"({"optimizer": {"lrr": 1}})", {"optimizer.lrr", "did you mean optimizer.lr?"});
  refused(R"({"optimiser": {"lr": 1}})", {"optimiser", "did you mean optimizer"});
  refused(R"({"model": {"kind": "gpt2", "layer": 1}})", {"model.layer", "model.layers?"});
  refused(R"({"model": {"kind": "gtp2"}})", {"gtp2", "did you mean gpt2?"});
  refused(R"({"model": {"kind": "mlp", "heads": 1}})", {"heads", "gpt2"});
  refused(R"({"optimizer": {"lr": "fast"}})", {"optimizer.lr", "expected a number", "\"fast\""});
  refused(R"({"training": {"steps": 1.5}})", {"training.steps", "expected an integer, not 1.5"});
  refused(R"({"training": 3})", {"training", "expected an object, not 3"});
  refused(R"({"parallel": {"zero": 7}})", {"parallel.zero", "from 0 to 3"});
  refused("{\n  \"model\": {,}\n}", {"line 2, column 13"});
  refused("[1]", {"expected an object"});
  expect_refused({"train", "--config", path("absent.json")}, {"absent.json"});
  expect_refused(configured({"--set", "optimizer.lrr=1"}), {"--set", "did you mean optimizer.lr?"});
  expect_refused(configured({"--set", "optimizer.lr=x"}), {"optimizer.lr", "expected a number"});
  expect_refused(configured({"--set", "optimizer.lr"}), {"name=value"});
}

}  // namespace
}  // namespace tutti::tool
