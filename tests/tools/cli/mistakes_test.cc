// Tests that misspelt options, damaged files and full disks end in one clear error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/text.h"
#include "tests/tools/cli/cli.h"
#include "training/data/token_file.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Mistakes : public Cli {
 protected:
  // Checks that the program fails with a short, printable error that contains these words.
  void expect_refused(const Words& arguments, const Words& words) const {
    SCOPED_TRACE(arguments.front() + " " + arguments.back());
    const Result result = run(arguments);
    EXPECT_GT(result.code, 0) << result.out;
    EXPECT_LT(result.code, 3) << result.err;
    for (const std::string& word : words) EXPECT_THAT(result.err, HasSubstr(word));
    EXPECT_LT(result.err.size(), 2000u);
    for (const char c : result.err) {
      EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c) << result.err;
    }
  }
  // Returns the arguments of a training that takes only a moment.
  static Words train(const Words& more) {
    Words words = {"train", "--ranks", "1", "--steps", "2", "--batch", "4", "--micro-batch", "4"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(Mistakes, UnwritableOutputIsAFailure) {
  const std::string text = write_text();
  for (const std::string& words :
       {std::string("info"), std::string("--help"), std::string("--version"),
        std::string("explain all_reduce"), std::string("draw ring -n 2"),
        std::string("pipeline --list"), std::string("bench all_reduce -n 1 --max 64"),
        std::string("bench all_reduce -n 2 --max 64"), std::string("run -n 2 -- echo"),
        "train --ranks 1 --steps 2 --data " + text, "train --ranks 2 --steps 2 --data " + text}) {
    const Result result =
        start_program({"sh", "-c", cat(tutti(), ' ', words, " > /dev/full")}).finish();
    EXPECT_EQ(result.code, 1) << words;
    EXPECT_THAT(result.err, AllOf(HasSubstr("standard output"), Not(HasSubstr("errno 0"))))
        << words;
  }
}

TEST_F(Mistakes, UnwritableJsonIsAFailure) {
  expect_refused({"explain", "all_reduce", "--json", "/dev/full"},
                 {"cannot write /dev/full", "No space left"});
}

TEST_F(Mistakes, EarlierResultsRemain) {
  const std::string earlier = write("losses.svg", "earlier");
  expect_refused({"plot", path("missing.jsonl"), "--out", earlier}, {"missing.jsonl"});
  expect_refused({"evaluate", path("none"), "--data", write_text(), "--json", earlier}, {"none"});
  EXPECT_EQ(read(earlier), "earlier");
}

TEST_F(Mistakes, UnknownWordsGetASuggestion) {
  expect_refused({"benhc", "all_reduce"}, {"benhc", "did you mean bench?"});
  expect_refused({"--versoin"}, {"--versoin", "did you mean --version?"});
  expect_refused({"bench", "all_reduce", "--tranport", "tcp"}, {"did you mean --transport?"});
  expect_refused({"train", "--dta", "x"}, {"--dta", "did you mean --data?", "tutti train --help"});
  expect_refused({"info", "--jsn=x"}, {"did you mean --json?"});
  const Result result = run({"info", "--zzzzzzzzzzzz"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("--zzzzzzzzzzzz"), Not(HasSubstr("did you mean"))));
}

TEST_F(Mistakes, NumbersHaveLimits) {
  const std::string text = write_text();
  for (const char* option : {"--validate-every", "--steps", "--batch", "--micro-batch", "--warmup",
                             "--validation-samples", "--workers", "--checkpoint-every", "--keep",
                             "--seed", "--lr", "--weight-decay", "--clip", "--bucket-mb",
                             "--epochs", "--context", "--layers", "--flush-every", "--ranks"}) {
    for (const char* value : {"-1", "nan", "1e999", "x"}) {
      const Result result = run({"train", "--data", text, option, value});
      EXPECT_NE(result.code, 0) << option << ' ' << value;
      EXPECT_LT(result.err.size(), 400u) << result.err;
    }
  }
  expect_refused({"train", "--data", text, "--seed", "99999999999999999999999"}, {"--seed"});
  expect_refused({"train", "--data", text, "--validate-every", "-1"},
                 {"--validate-every", "from 0 to 1000000000", "not -1"});
  expect_refused({"sample", "x", "--tokens", "-5"}, {"--tokens", "not -5"});
  expect_refused({"verify", "--max-ranks", "-5"}, {"--max-ranks", "not -5"});
  expect_refused({"draw", "ring", "-n", "-5"}, {"--ranks", "not -5"});
  expect_refused({"explain", "all_reduce", "--group", "-5"}, {"--group", "not -5"});
  expect_refused({"bench", "all_reduce", "--factor", "-5"}, {"--factor", "not -5"});
  expect_refused({"pipeline", "1f1b", "-p", "2", "-m", "2", "--forward", "nan"}, {"--forward"});
  expect_refused({"chaos", "--faults", "kill,parttion", "--", "true"},
                 {"--faults: \"parttion\" is not one of kill, two, ", "did you mean partition?"});
}

TEST_F(Mistakes, OptionsWithoutEffectAreRefused) {
  const std::string text = write_text();
  expect_refused(train({"--data", text, "--model", "mlp", "--heads", "4"}),
                 {"--heads", "--model gpt2", "mlp"});
  expect_refused(train({"--data", text, "--model", "gpt2", "--blocks", "1"}),
                 {"--blocks", "--model resnet", "gpt2"});
  expect_refused(train({"--data", text, "--no-bias"}), {"--no-bias", "gpt2"});
  expect_refused({"partition", "--model", "mlp", "--width", "64"}, {"--width", "gpt2"});
  expect_refused(train({"--data", text, "--momentum", "0.5"}), {"--momentum", "sgd"});
  expect_refused(train({"--data", text, "--optimizer", "sgd", "--beta1", "0.5"}), {"--beta1"});
  expect_refused(train({"--data", text, "--keep", "3"}), {"--keep", "--checkpoint DIR"});
  expect_refused(train({"--data", text, "--set", "training.samples=640"}),
                 {"training.samples", "--steps or --epochs"});
  expect_refused(train({"--data", text, "--model", "llama", "--rope-factor", "2"}),
                 {"--rope-factor", "--rope-scaling"});
  expect_refused(train({"--data", text, "--lr-schedule", "constant", "--final-fraction", "0.5"}),
                 {"--final-fraction", "--lr-schedule cosine"});
  expect_refused(train({"--data", text, "--flush-every", "2"}), {"--flush-every", "pipedream"});
  expect_refused(train({"--data", text, "--optimizer", "sgd", "--momentum", "0", "--nesterov"}),
                 {"--nesterov", "--momentum"});
  expect_refused({"tune", "--check", "--json", "x"}, {"--check excludes --json"});
  expect_refused({"tune", "--check", "--device", "cuda"}, {"--device cuda excludes --check"});
  expect_refused({"topo", "--hosts", "nosuch1,nosuch2"}, {"--hosts", "require --measure"});
  expect_refused({"chaos", "--plan", "x", "--seed", "7", "--", "true"},
                 {"--plan FILE excludes --seed"});
  expect_refused({"export", "run", "x.safetensors", "--max-shard-size", "1M"},
                 {"FILE.safetensors excludes --max-shard-size"});
  const Words plan = {"plan", "--model", "llama3-8b", "--cluster", "p5:2", "--global-batch",
                      "64",   "--seq",   "4096",      "--tokens",  "1T"};
  const auto plan_with = [&](const Words& more) {
    Words words = plan;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  expect_refused(plan_with({"--days", "60", "--largest", "sequence"}),
                 {"--days excludes --largest"});
  expect_refused(plan_with({"--days", "60", "--plot", "x.svg"}), {"--days excludes --plot"});
  expect_refused(plan_with({"--memory"}), {"--memory excludes --cluster"});
  expect_refused(train({"--data", text, "--copies", "1"}), {"--copies", "--min-ranks"});
  expect_refused(train({"--data", text, "--copy-every", "2"}), {"--copy-every", "--min-ranks"});
}

TEST_F(Mistakes, LastOfARepeatedOptionCounts) {
  const Result once = run({"draw", "ring", "--ranks", "5"});
  EXPECT_EQ(once.code, 0) << once.err;
  EXPECT_EQ(run({"draw", "ring", "--ranks", "4", "--ranks", "5"}).out, once.out);
  EXPECT_NE(run({"draw", "ring", "--ranks", "5", "--ranks", "4"}).out, once.out);
}

// Tests every kind of JSON file that a command reads.
TEST_F(Mistakes, FilesOfDeepBracketsAreRefused) {
  const std::string text = write_text();
  const std::string deep(1'000'000, '[');
  std::filesystem::create_directory(path("gpt2"));
  write("gpt2/vocab.json", deep);
  write("gpt2/merges.txt", "#version: 0.2\n");
  expect_refused({"tokenize", "--data", text, "--tokenizer", path("gpt2"), "--out", path("o.bin")},
                 {"vocab.json", "brackets"});
  write("gpt2/vocab.json", "{\"a\":" + std::string(60, '[') + std::string(60, ']') + "}");
  expect_refused({"tokenize", "--data", text, "--tokenizer", path("gpt2"), "--out", path("o.bin")},
                 {"vocab.json", "\"a\" is an array"});
  expect_refused({"partition", "--profile", write("profile", deep)}, {"profile", "brackets"});
  expect_refused({"plot", write("a.jsonl", deep)}, {"a.jsonl", "brackets"});
  const std::string header = "{\"a\":" + deep;
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i));
  expect_refused(train({"--data", text, "--initial", write("i.safetensors", length + header)}),
                 {"i.safetensors", "brackets"});
  std::string xml;
  for (int i = 0; i < 100'000; ++i) xml += "<algo>";
  expect_refused({"draw", write("deep.xml", xml), "-n", "2"}, {"deep.xml"});
}

TEST_F(Mistakes, FilesCannotSteerTheTerminal) {
  const std::string evil = "\x1b]0;owned\x07" + std::string(100'000, 'x');
  expect_refused({"plot", write("a.jsonl", "{\"step\": \"" + evil)}, {"a.jsonl"});
  expect_refused({"partition", "--profile", write("p", "{\"format\":\"" + evil + "\"}")},
                 {"/p is not a profile"});
  const std::string algorithm = "<algo name=\"" + evil + "\" proto=\"Simple\" nchannels=\"1\" " +
                                "nchunksperloop=\"1\" ngpus=\"2\" coll=\"" + evil + "\"></algo>";
  expect_refused({"draw", write("a.xml", algorithm), "-n", "2"}, {"a.xml"});
  const std::string attribute = "<algo name=\"a\" proto=\"Simple\" nchannels=\"" + evil +
                                "\" nchunksperloop=\"1\" ngpus=\"2\" coll=\"allreduce\"></algo>";
  expect_refused({"draw", write("b.xml", attribute), "-n", "2"}, {"b.xml"});
}

TEST_F(Mistakes, TextsOfJsonLinesAreTrainedOn) {
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += "{\"text\": \"the " + std::to_string(i) + "th line\"}\n";
  const Result result = run(train({"--data", write("a.jsonl", lines)}));
  EXPECT_EQ(result.code, 0) << result.err;
  expect_refused(train({"--data", write("b.jsonl", lines + "{\"body\": 1}\n")}),
                 {"line 201 of", "b.jsonl", "\"text\""});
}

// --- Initial parameters ---

class Initial : public Mistakes {
 protected:
  static Words gpt(const Words& more, const std::string& context = "8") {
    Words words = train({"--model", "gpt2", "--layers", "1", "--heads", "1", "--width", "8",
                         "--context", context, "--vocabulary", "256"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // Exports the parameters of two steps by `checkpoint --export`.
  std::string exported(const Words& more) const {
    Words words = gpt({"--data", text_, "--checkpoint", path("run")});
    words.insert(words.end(), more.begin(), more.end());
    const Result trained = run(words);
    EXPECT_EQ(trained.code, 0) << trained.err;
    const std::string file = path("model.safetensors");
    const Result result = run({"checkpoint", path("run"), "--export", file});
    EXPECT_EQ(result.code, 0) << result.err;
    std::filesystem::remove_all(path("run"));
    return file;
  }
  std::string text_ = write_text();
};

TEST_F(Initial, ParametersThatDoNotFitAreNamed) {
  const std::string file = exported({});
  EXPECT_EQ(run(gpt({"--data", text_, "--initial", file})).code, 0);
  expect_refused(gpt({"--data", text_, "--initial", file, "--no-bias"}),
                 {file, "the model has no ", "bias", "do not match"});
  expect_refused(gpt({"--data", text_, "--initial", file, "--untied"}),
                 {file, "the file lacks lm_head.weight"});
  expect_refused(gpt({"--data", text_, "--initial", file, "--vocabulary", "300"}),
                 {file, "the shape differs for wte.weight"});
  expect_refused(gpt({"--data", text_, "--initial", file}, "16"),
                 {"a maximum context of 8 tokens cannot have a context of 16", "--context"});
}

TEST_F(Initial, MoreLayersAreRefusedOnceForAllRanks) {
  Words words = gpt({"--data", text_, "--checkpoint", path("run")});
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--layers") words[i + 1] = "2";
  }
  ASSERT_EQ(run(words).code, 0);
  const std::string file = path("two.safetensors");
  ASSERT_EQ(run({"checkpoint", path("run"), "--export", file}).code, 0);
  words = gpt({"--data", text_, "--initial", file});
  words[2] = "2";  // ranks
  const Result result = run(words);
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("the model has no h.1."), HasSubstr(" more")));
  EXPECT_EQ(result.err.find("do not match"), result.err.rfind("do not match")) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("last calls"))) << "a log of calls helps nobody here";
}

// The run's checkpoints also contain optimizer states.
TEST_F(Initial, ReadsTheDirectoryOfARun) {
  ASSERT_EQ(run(gpt({"--data", text_, "--checkpoint", path("run")})).code, 0);
  const Result result = run(gpt({"--data", text_, "--initial", path("run")}));
  EXPECT_EQ(result.code, 0) << result.err;
}

// Supports launchers that restart ranks with the same command.
TEST_F(Initial, FileMayBeMissingOnceTheRunHasAStep) {
  const std::string file = exported({});
  Words words = gpt({"--data", text_, "--initial", file, "--checkpoint", path("run"), "--resume",
                     "auto", "--steps", "3"});
  ASSERT_EQ(run(words).code, 0);
  std::filesystem::remove(file);
  for (const char* more : {"", "--spares=1"}) {
    words.insert(words.end(), {"--steps", *more == 0 ? "4" : "5"});
    if (*more != 0) words.emplace_back(more);
    const Result result = run(words);
    EXPECT_EQ(result.code, 0) << result.err;
  }
  std::filesystem::remove_all(path("run"));
  expect_refused(words, {file});
}

TEST_F(Initial, ParametersThatAreNaNAreReported) {
  const std::string file = exported({});
  std::string bytes = read(file);
  bytes.replace(bytes.size() - 4, 4, std::string("\0\0\xc0\x7f", 4));
  std::ofstream(file, std::ios::binary) << bytes;
  expect_refused(gpt({"--data", text_, "--initial", file}), {file, "not all finite", "NaN"});
}

// --- A token file that changes ---

TEST_F(Mistakes, TruncatedTokenFileEndsTrainingWithItsName) {
  const std::string file = path("a.bin");
  training::TokenWriter writer(file, {.vocabulary = 256, .end_of_text = {}});
  for (int i = 0; i < 100; ++i) writer.write(std::vector<int32_t>(10'000, i));
  writer.finish();
  Process job = start({"train", "--ranks", "2", "--steps", "1000000", "--batch", "8",
                       "--micro-batch", "4", "--data", file, "--json", path("log")});
  const Deadline deadline = Deadline::after(testing::kPatience);
  while (!std::filesystem::exists(path("log")) || read(path("log")).empty()) {
    ASSERT_FALSE(deadline.passed()) << "it does not train";
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::filesystem::resize_file(file, 4096);
  const Result result = job.finish();
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr(file), HasSubstr("was truncated during the run")));
  EXPECT_THAT(result.err, Not(HasSubstr("SIGBUS")));
}

}  // namespace
}  // namespace tutti::tool
