// Tests import and export of Hugging Face models, text generation, and their loss on a text.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class HuggingFaceCommands : public Cli {
 protected:
  // Trains a model of bytes, so that any text is valid data.
  void train_llama(const std::string& run_directory) {
    expect_good({"train", "--data",    data_, "--model",      "llama",      "--layers",
                 "2",     "--heads",   "4",   "--kv-heads",   "2",          "--width",
                 "16",    "--context", "32",  "--steps",      "4",          "--batch",
                 "4",     "--ranks",   "1",   "--checkpoint", run_directory});
  }
  Result expect_good(const Words& words) {
    Result result = run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return result;
  }
  std::string sample(const std::string& model) {
    return expect_good({"sample", model, "--prompt", "Once", "--tokens", "60", "--top-p", "0.9"})
        .out;
  }
  Json evaluate(const std::string& model, const Words& more = {}) {
    Words words = {"evaluate", model, "--data", data_, "--json", path("loss.json")};
    words.insert(words.end(), more.begin(), more.end());
    expect_good(words);
    return Json::parse(read(path("loss.json")));
  }

  std::string data_ = write_text(4000);
};

TEST_F(HuggingFaceCommands, ModelIsTheSameInEveryFormat) {
  train_llama(path("run"));
  expect_good({"export", path("run"), path("hf"), "--max-shard-size", "8K"});
  EXPECT_TRUE(std::filesystem::exists(path("hf/model.safetensors.index.json")));
  expect_good({"export", path("run"), path("model.safetensors")});
  EXPECT_THAT(expect_good({"import", path("hf"), path("again")}).out,
              AllOf(HasSubstr("llama"), HasSubstr("kv_heads=2")));
  const Result twice = run({"import", path("hf"), path("again")});
  EXPECT_NE(twice.code, 0);
  EXPECT_THAT(twice.err, AllOf(HasSubstr("--overwrite"), Not(HasSubstr("--resume"))));
  const std::string text = sample(path("run"));
  const Json loss = evaluate(path("run"));
  EXPECT_EQ(text.substr(0, 4), "Once");
  for (const char* elsewhere : {"hf", "model.safetensors", "again"}) {
    EXPECT_EQ(sample(path(elsewhere)), text) << elsewhere;
    EXPECT_EQ(evaluate(path(elsewhere)).at("loss"), loss.at("loss")) << elsewhere;
  }
}

// Generation ends at any of the tokens that the model names, as in generate() of transformers.
TEST_F(HuggingFaceCommands, TextEndsAtTheModelsEndTokens) {
  train_llama(path("run"));
  expect_good({"export", path("run"), path("hf")});
  Json all = Json::array();
  for (int token = 0; token < 256; ++token) all.push_back(token);
  const std::string file = path("hf/config.json");
  Json config = Json::parse(read(file));
  config["eos_token_id"] = all;
  write("hf/config.json", config.dump());
  EXPECT_EQ(sample(path("hf")), "Once\n");
  const Words on = {"sample", path("hf"), "--prompt", "Once", "--tokens", "9", "--ignore-eos"};
  EXPECT_GT(expect_good(on).out.size(), 8u);
  // The configuration for generation takes precedence.
  write("hf/generation_config.json", R"({"eos_token_id": 300})");
  EXPECT_GT(sample(path("hf")).size(), 40u);
  write("hf/generation_config.json", R"({"temperature": 1})");
  EXPECT_EQ(sample(path("hf")), "Once\n");
}

TEST_F(HuggingFaceCommands, NamesFilesThatAreGitLfsPointers) {
  train_llama(path("run"));
  expect_good({"export", path("run"), path("hf")});
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5000000\n";
  const auto refusal = [&](const Words& words) {
    const Result result = run(words);
    EXPECT_EQ(result.code, 1) << result.err;
    return result.err;
  };
  write("hf/model.safetensors", pointer);
  EXPECT_THAT(refusal({"import", path("hf"), path("a")}),
              AllOf(HasSubstr("Git LFS pointer"), HasSubstr("git lfs pull")));
  std::filesystem::rename(path("hf/model.safetensors"), path("hf/pytorch_model.bin"));
  EXPECT_THAT(refusal({"import", path("hf"), path("a")}),
              AllOf(HasSubstr("its weights only in pytorch_model.bin"), HasSubstr("convert it")));
  EXPECT_THAT(refusal({"train", "--data", write("tokens.bin", pointer)}),
              HasSubstr("Git LFS pointer"));
  EXPECT_THAT(refusal({"train", "--data", write("text", pointer)}), HasSubstr("a Git LFS pointer"));
}

// Weights in blocks of few bits take as much memory as expected, and change the loss by little.
TEST_F(HuggingFaceCommands, SupportWeightsInFewBits) {
  train_llama(path("run"));
  const Json whole = evaluate(path("run"));
  const auto parameters = [&](const Json& found) {
    return found.at("parameter_bytes").get<int64_t>();
  };
  int64_t before = parameters(whole);
  for (const auto& [format, tolerance] : {std::pair{"q8_0", 0.01}, std::pair{"q4_0", 0.2}}) {
    const Json found = evaluate(path("run"), {"--weights", format});
    EXPECT_NEAR(found.at("loss").get<double>(), whole.at("loss").get<double>(), tolerance);
    EXPECT_NE(found.at("loss"), whole.at("loss"));
    EXPECT_LT(parameters(found), before);
    before = parameters(found);
  }
  const Words words = {"sample",        path("run"), "--tokens",  "40",
                       "--temperature", "0",         "--weights", "q4_0"};
  EXPECT_EQ(expect_good(words).out.size(), 42u);
  EXPECT_EQ(run({"sample", path("run"), "--weights", "q3"}).code, 2);
}

TEST_F(HuggingFaceCommands, EvaluatesOnRanksAndInShorterContexts) {
  train_llama(path("run"));
  const Json one = evaluate(path("run")), two = evaluate(path("run"), {"--ranks", "2"});
  EXPECT_EQ(one.at("targets"), two.at("targets"));
  EXPECT_NEAR(one.at("loss").get<double>(), two.at("loss").get<double>(), 1e-9);
  EXPECT_NEAR(one.at("perplexity").get<double>(), std::exp(one.at("loss").get<double>()), 1e-9);
  EXPECT_EQ(evaluate(path("run"), {"--context", "8"}).at("context"), 8);
  const Result longer = run({"evaluate", path("run"), "--data", data_, "--context", "33"});
  EXPECT_EQ(longer.code, 1);
  EXPECT_THAT(longer.err, AllOf(HasSubstr("--context"), HasSubstr("at most 32")));
}

// No option describes the imported model. The optimizer state and the step count start anew.
TEST_F(HuggingFaceCommands, AnImportedModelIsTrainedFurther) {
  train_llama(path("first"));
  expect_good({"export", path("first"), path("hf")});
  expect_good({"import", path("hf"), path("run")});
  const Words options = {"--data",  data_, "--steps",      "3",         "--batch", "4",
                         "--ranks", "1",   "--checkpoint", path("run"), "--json"};
  Words resumed = {"train", "--resume"};
  resumed.insert(resumed.end(), options.begin(), options.end());
  resumed.push_back(path("resumed.jsonl"));
  expect_good(resumed);
  // The result equals that of a new run that takes its initial values from the same directory.
  Words initial = {"train", "--initial", path("hf")};
  initial.insert(initial.end(), options.begin(), options.end());
  initial.push_back(path("initial.jsonl"));
  std::replace(initial.begin(), initial.end(), path("run"), path("other"));
  expect_good(initial);
  const auto losses = [&](const std::string& file) {
    std::vector<double> values;
    std::istringstream lines(read(path(file)));
    for (std::string line; std::getline(lines, line);) {
      const Json json = Json::parse(line);
      if (json.contains("step") && json.contains("loss")) {
        values.push_back(json.at("loss").get<double>());
      }
    }
    return values;
  };
  EXPECT_GE(losses("resumed.jsonl").size(), 3u);
  EXPECT_EQ(losses("resumed.jsonl"), losses("initial.jsonl"));
  expect_good({"export", path("run"), path("trained")});
}

TEST_F(HuggingFaceCommands, TrainsInAShorterContextAndKeepsTheLongerOne) {
  expect_good({"train", "--data",  data_, "--model",      "gpt2",       "--layers", "1", "--heads",
               "2",     "--width", "16",  "--context",    "32",         "--steps",  "2", "--batch",
               "4",     "--ranks", "1",   "--checkpoint", path("first")});
  expect_good({"export", path("first"), path("hf")});
  expect_good({"import", path("hf"), path("run")});
  expect_good({"train", "--data", data_, "--context", "16", "--steps", "2", "--batch", "4",
               "--ranks", "1", "--checkpoint", path("run"), "--resume"});
  expect_good({"export", path("run"), path("trained")});
  const Json config = Json::parse(read(path("trained/config.json")));
  EXPECT_EQ(config.at("n_positions"), 32);
  EXPECT_EQ(config.at("model_type"), "gpt2");
}

TEST_F(HuggingFaceCommands, ExportContainsNothingOfAnOverwrittenModel) {
  train_llama(path("first"));
  expect_good({"export", path("first"), path("hf")});
  write("hf/tokenizer.json", "{}");
  expect_good({"import", path("hf"), path("run")});
  const Words gpt2 = {"train", "--data",       data_,       "--model",    "gpt2", "--layers",
                      "1",     "--heads",      "2",         "--width",    "16",   "--context",
                      "32",    "--steps",      "1",         "--batch",    "4",    "--ranks",
                      "1",     "--checkpoint", path("run"), "--overwrite"};
  expect_good(gpt2);
  expect_good({"export", path("run"), path("out")});
  EXPECT_FALSE(std::filesystem::exists(path("out/tokenizer.json")));
  const Json config = Json::parse(read(path("out/config.json")));
  EXPECT_EQ(config.at("model_type"), "gpt2");
  EXPECT_FALSE(config.contains("num_key_value_heads"));
  // Files of another architecture may exist for other reasons.
  std::filesystem::create_directory(path("run/hugging-face"));
  std::filesystem::copy_file(path("hf/config.json"), path("run/hugging-face/config.json"));
  expect_good({"export", path("run"), path("again")});
  EXPECT_FALSE(Json::parse(read(path("again/config.json"))).contains("num_key_value_heads"));
}

// The steps of the source run are removed; the model's additional files belong to the new run.
TEST_F(HuggingFaceCommands, RunMayStartFromTheRunThatItOverwrites) {
  train_llama(path("first"));
  expect_good({"export", path("first"), path("hf")});
  write("hf/tokenizer_config.json", "{}");
  expect_good({"import", path("hf"), path("run")});
  expect_good({"train", "--data", data_, "--initial", path("run"), "--steps", "1", "--batch", "4",
               "--ranks", "1", "--checkpoint", path("run"), "--overwrite"});
  expect_good({"export", path("run"), path("out")});
  EXPECT_TRUE(std::filesystem::exists(path("out/tokenizer_config.json")));
}

TEST_F(HuggingFaceCommands, TextIsRefusedForAModelWithATokenizer) {
  train_llama(path("first"));
  expect_good({"export", path("first"), path("hf")});
  write("hf/tokenizer.json", "{}");
  expect_good({"import", path("hf"), path("run")});
  for (const Words& from : {Words{"--initial", path("hf")}, Words{"--initial", path("run")},
                            Words{"--checkpoint", path("run"), "--resume"}}) {
    Words words = {"train", "--data", data_, "--steps", "1", "--ranks", "1"};
    words.insert(words.end(), from.begin(), from.end());
    const Result result = run(words);
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("has a tokenizer"), HasSubstr("tutti tokenize --tokenizer ")));
  }
}

// An export replaces an earlier export, but neither a run nor other files.
TEST_F(HuggingFaceCommands, AnExportOverwritesNothingElse) {
  train_llama(path("run"));
  std::filesystem::create_directories(path("precious/sub"));
  write("precious/sub/thesis.txt", "years of work");
  std::filesystem::create_directory_symlink(path("run"), path("link"));
  const std::string step = path("run/step-00000004");
  ASSERT_TRUE(std::filesystem::exists(step));
  const auto export_to = [&](const std::string& run_directory, const std::string& directory) {
    const Result result = run({"export", run_directory, directory, "--overwrite"});
    EXPECT_EQ(result.code, 1) << directory;
    return result.err;
  };
  EXPECT_THAT(export_to(path("run"), path("run")), HasSubstr("contains the run"));
  EXPECT_THAT(export_to(step, path("run")), HasSubstr("contains the run"));
  EXPECT_THAT(export_to(step, path("link")), HasSubstr("contains the run"));
  EXPECT_THAT(export_to(path("run"), path(".")), HasSubstr("contains the run"));
  EXPECT_THAT(export_to(path("run"), step), HasSubstr("is inside the run"));
  EXPECT_THAT(export_to(path("run"), path("run/hf")), HasSubstr("is inside the run"));
  EXPECT_THAT(export_to(path("run"), path("precious")),
              AllOf(HasSubstr("no export wrote: \"sub\""), HasSubstr("use a new directory")));
  EXPECT_EQ(read(path("precious/sub/thesis.txt")), "years of work");
  expect_good({"evaluate", path("run"), "--data", data_});
  expect_good({"export", path("run"), path("hf"), "--max-shard-size", "8K"});
  expect_good({"export", path("run"), path("hf"), "--overwrite"});
  EXPECT_FALSE(std::filesystem::exists(path("hf/model.safetensors.index.json")));
}

TEST_F(HuggingFaceCommands, NamesMistakes) {
  const Result none = run({"import", path("nowhere"), path("run")});
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, HasSubstr("config.json"));
  EXPECT_FALSE(std::filesystem::exists(path("run")));
  expect_good(
      {"train", "--data", data_, "--steps", "1", "--ranks", "1", "--checkpoint", path("mlp")});
  const Result mlp = run({"export", path("mlp"), path("hf")});
  EXPECT_EQ(mlp.code, 1);
  EXPECT_THAT(mlp.err, AllOf(HasSubstr("mlp"), HasSubstr("LlamaForCausalLM")));
  EXPECT_FALSE(std::filesystem::exists(path("hf")));
  const Result sampled = run({"sample", path("mlp")});
  EXPECT_EQ(sampled.code, 1);
  EXPECT_THAT(sampled.err, HasSubstr("not a transformer language model"));
}

}  // namespace
}  // namespace tutti::tool
