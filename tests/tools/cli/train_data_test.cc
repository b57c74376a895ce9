// Tests `tutti train` on files of `tutti tokenize`: mixtures, documents, prompts.
#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "tests/tools/cli/cli.h"
#include "tests/training/data/tiny_vocabulary.h"

namespace tutti::tool {
namespace {

using ::testing::HasSubstr;

class TrainData : public Cli {
 protected:
  // Tokenizes a file and returns the token file.
  std::string tokenized(const std::string& file, const Words& more = {}) const {
    Words words = {"tokenize", "--data", file, "--out", file + ".bin"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return file + ".bin";
  }
  // Trains a GPT for a few steps; returns its log lines, the last of which is the summary.
  std::vector<Json> trained(const Words& more) const {
    Words words = {"train", "--model", "gpt2",      "--layers",  "1", "--heads",
                   "2",     "--width", "16",        "--batch",   "8", "--micro-batch",
                   "4",     "--json",  path("log"), "--context", "16"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    out_ = result.out;
    std::istringstream file(read(path("log")));
    std::vector<Json> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  static double loss_at_the_end(const std::vector<Json>& lines) {
    return lines.at(lines.size() - 2).at("loss").get<double>();
  }

  mutable std::string out_;
};

TEST_F(TrainData, PrintsTheEpochsOfEachDataSet) {
  std::string text;
  while (text.size() < 2000) text += cat("sentence ", text.size(), ". ");
  const std::string a = tokenized(write("a", text.substr(0, 2000)));
  const std::string b = tokenized(write("b", text.substr(0, 500)));
  const std::vector<Json> lines =
      trained({"--ranks", "1", "--steps", "4", "--data", a, b, "--data-weights", "3", "1"});
  ASSERT_EQ(lines.size(), 5u);
  // 1800 and 450 training tokens in windows of 16 that may be shifted.
  const std::vector<double> wanted = {24 / 111.0, 8 / 27.0};
  EXPECT_EQ(lines.back().at("epochs").get<std::vector<double>>(), wanted);
  EXPECT_EQ(lines.at(3).at("epochs").get<std::vector<double>>(), wanted);
  EXPECT_EQ(lines.at(0).at("epochs").get<std::vector<double>>()[0], 6 / 111.0);
  EXPECT_THAT(out_, HasSubstr(cat("epochs           0.22 of ", a, ", 0.30 of ", b, "\n")));
}

TEST_F(TrainData, ChecksTheSamplesOfAnEpoch) {
  const Result right = run({"data", "1000", "--epoch-check", "-n", "3", "--batch", "24"});
  EXPECT_EQ(right.code, 0) << right.err;
  EXPECT_THAT(right.out, HasSubstr("ok: each sample once an epoch"));
  EXPECT_THAT(run({"data", "1000", "--batch", "24"}).err, HasSubstr("--epoch-check"));
}

// FineWeb's layout: several training files and one validation file.
TEST_F(TrainData, ShardsHaveOneFileToValidateOn) {
  std::string text;
  while (text.size() < 2000) text += cat("sentence ", text.size(), ". ");
  const std::string a = tokenized(write("a", text.substr(0, 2000)));
  const std::string b = tokenized(write("b", text.substr(500, 1000)));
  const std::string v = tokenized(write("v", text.substr(0, 700)));
  const Words words = {"--ranks", "1", "--steps", "4", "--data", a, b};
  Words with = words;
  with.insert(with.end(), {"--validation", v});
  const std::vector<Json> lines = trained(with);
  // 700 tokens of the validation file contain 43 windows of 16; no training shard is validated on.
  EXPECT_EQ(lines.back().at("validation_samples"), 43 * 16);
  EXPECT_NE(trained(words).back().at("validation_samples"), 43 * 16);
}

TEST_F(TrainData, DocumentMasksHideOtherDocuments) {
  std::filesystem::create_directory(path("tokenizer"));
  Json vocabulary = training::tiny_vocabulary();
  vocabulary["<|endoftext|>"] = 263;
  write("tokenizer/vocab.json", vocabulary.dump());
  write("tokenizer/merges.txt", training::kMerges);
  std::string lines;
  for (int i = 0; i < 400; ++i) lines += cat("{\"text\": \"", i * i, "\"}\n");
  const std::string data = tokenized(write("a.jsonl", lines), {"--tokenizer", path("tokenizer")});
  const auto loss = [&](const Words& more) {
    Words words = {"--data", data, "--steps", "5", "--lr", "0.01"};
    words.insert(words.end(), more.begin(), more.end());
    return loss_at_the_end(trained(words));
  };
  const double masked = loss({"--ranks", "1", "--document-mask"});
  EXPECT_NEAR(loss({"--ranks", "2", "--document-mask"}), masked, 1e-5);
  EXPECT_GT(std::abs(loss({"--ranks", "1"}) - masked), 1e-5);
  const Result bytes = run({"train", "--model", "gpt2", "--document-mask", "--data", write_text()});
  EXPECT_EQ(bytes.code, 1);
  EXPECT_THAT(bytes.err, HasSubstr("the data does not mark document boundaries [--document-mask]"));
}

// Random digits cannot be learnt, but the text after them can.
TEST_F(TrainData, PromptsAreNotLearnt) {
  std::string pairs;
  std::string texts;
  uint64_t number = 1;
  for (int i = 0; i < 300; ++i) {
    number = (number * 6364136223846793005u) + 1442695040888963407u;
    const std::string prompt = cat(number % 100'000'000, ":");
    pairs += cat("{\"prompt\": \"", prompt, "\", \"completion\": \"zy\"}\n");
    texts += cat("{\"text\": \"", prompt, "zy\"}\n");
  }
  const Words options = {"--ranks", "1", "--steps", "60", "--lr", "0.02", "--data"};
  const auto loss = [&](const std::string& file) {
    Words words = options;
    words.push_back(tokenized(file));
    return loss_at_the_end(trained(words));
  };
  EXPECT_LT(loss(write("pairs.jsonl", pairs)), 0.2);
  EXPECT_GT(loss(write("texts.jsonl", texts)), 1) << "with the digits";
}

}  // namespace
}  // namespace tutti::tool
