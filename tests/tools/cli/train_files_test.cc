// Tests the files that `tutti train` writes for other programs: JSON, CSV and TensorBoard events
// have the same numbers. Also tests background checkpoints and the checkpoint of the best step.
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TrainFiles : public Cli {
 protected:
  Words command(const Words& more) const {
    Words words = {"train", "--ranks",  "2",  "--data", text_,     "--batch",
                   "64",    "--hidden", "32", "--json", path("j"), "--validate-every",
                   "3"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Result train(const Words& more) const {
    Result result = run(command(more));
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    return result;
  }

  using Numbers = std::map<std::string, double>;
  // Returns all numbers of each step.
  std::map<int, Numbers> json() const {
    std::map<int, Numbers> steps;
    for (const std::string& line : split(read(path("j")), '\n')) {
      const Json object = Json::parse(line);
      if (!object.contains("step")) {  // a summary belongs to the last step
        for (const char* name : {"validation_loss", "perplexity"}) {
          steps.rbegin()->second[name] = object.at(name);
        }
        continue;
      }
      for (const auto& [name, value] : object.items()) {
        if (value.is_number() && name != "step" && name != "resumed_at")
          steps[object.at("step")][name] = value.get<double>();
      }
    }
    return steps;
  }
  std::map<int, Numbers> csv() const {
    std::map<int, Numbers> steps;
    std::vector<std::string> names;
    for (const std::string& line : split(read(path("c")), '\n')) {
      std::vector<std::string> fields;  // empty ones too
      std::istringstream rest(line + ',');
      for (std::string field; std::getline(rest, field, ',');) fields.push_back(field);
      if (names.empty()) {
        names = fields;
        continue;
      }
      EXPECT_EQ(fields.size(), names.size()) << line;
      for (size_t i = 1; i < fields.size(); ++i) {
        if (!fields[i].empty()) steps[std::stoi(fields[0])][names[i]] = std::stod(fields[i]);
      }
    }
    return steps;
  }
  std::map<int, Numbers> events() const {
    const Result result =
        start_program({"python3", "tests/training/logs/read_events.py", path("t")}).finish();
    EXPECT_EQ(result.code, 0) << result.err;
    std::map<int, Numbers> steps;
    for (const std::string& line : split(result.out, '\n')) {
      if (line.empty()) continue;
      const Json event = Json::parse(line);
      const Json* scalars = event.find("scalars");
      if (scalars == nullptr) continue;
      for (const auto& [name, value] : scalars->items())
        steps[event.at("step")][name] = value.get<double>();
    }
    return steps;
  }

  const std::string text_ = write_text();
};

TEST_F(TrainFiles, AllFilesHaveTheSameNumbers) {
  const Words files = {"--csv", path("c"), "--tensorboard", path("t"), "--checkpoint", path("run")};
  Words first = files, second = files;
  first.insert(first.end(), {"--steps", "4"});
  train(first);
  // A resumed run appends to all of them.
  second.insert(second.end(), {"--steps", "6", "--resume"});
  train(second);
  const auto in_json = json(), in_csv = csv(), in_events = events();
  ASSERT_EQ(in_json.size(), 6u);
  ASSERT_EQ(in_csv.size(), 6u);
  ASSERT_EQ(in_events.size(), 6u);
  for (const auto& [step, numbers] : in_json) {
    EXPECT_GE(numbers.size(), 9u);
    for (const auto& [name, value] : numbers) {
      SCOPED_TRACE(cat("step ", step, ": ", name));
      ASSERT_TRUE(in_csv.at(step).contains(name));
      ASSERT_TRUE(in_events.at(step).contains(name));
      EXPECT_EQ(in_csv.at(step).at(name), value);
      EXPECT_EQ(in_events.at(step).at(name), static_cast<double>(static_cast<float>(value)));
    }
  }
  EXPECT_GT(in_json.at(3).at("perplexity"), 1);
}

TEST_F(TrainFiles, JumpOfTheRateIsReported) {
  const Words files = {"--checkpoint", path("run")};
  Words first = files, second = files;
  first.insert(first.end(), {"--steps", "20"});
  train(first);
  second.insert(second.end(), {"--steps", "60", "--resume"});
  EXPECT_THAT(train(second).err, HasSubstr("the learning rate jumps from "));
}

// The run is resumed from a step before its last step.
TEST_F(TrainFiles, FilesHaveEachStepOnce) {
  const Words files = {"--csv", path("c"), "--checkpoint", path("run"), "--steps", "6"};
  Words first = files, second = files;
  first.insert(first.end(), {"--checkpoint-every", "2", "--keep", "0"});
  train(first);
  second.insert(second.end(), {"--resume", "2"});
  train(second);
  std::map<std::string, int> lines;
  for (const std::string& line : split(read(path("c")), '\n'))
    ++lines[line.substr(0, line.find(','))];
  EXPECT_EQ(lines.size(), 7u) << "with the names";
  for (const auto& [step, count] : lines) EXPECT_EQ(count, step == "6" ? 2 : 1) << step;
  std::map<int, int> steps;
  for (const std::string& line : split(read(path("j")), '\n')) {
    if (const Json object = Json::parse(line); object.contains("step")) ++steps[object.at("step")];
  }
  EXPECT_EQ(steps.size(), 6u);
  for (const auto& [step, count] : steps) EXPECT_EQ(count, 1) << step;
}

TEST_F(TrainFiles, ReportBitsPerByteIfBytesAreKnown) {
  const auto summary = [&] { return Json::parse(split(read(path("j")), '\n').back()); };
  train({"--steps", "2"});
  EXPECT_TRUE(summary().contains("validation_bits_per_byte"));
  ASSERT_EQ(run({"tokenize", "--data", text_, "--out", path("tokens.bin")}).code, 0);
  const Result result = run({"train", "--ranks", "1", "--data", path("tokens.bin"), "--steps", "2",
                             "--batch", "64", "--hidden", "32", "--json", path("j")});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_FALSE(summary().contains("validation_bits_per_byte"));
  EXPECT_GT(summary().at("validation_bits"), 1);
}

TEST_F(TrainFiles, UnwritableFilesAreFoundFirst) {
  const Result csv = run(command({"--steps", "6", "--csv", "/nonexistent/x"}));
  EXPECT_NE(csv.code, 0);
  EXPECT_THAT(csv.err, HasSubstr("cannot write /nonexistent/x"));
  const Result board = run(command({"--steps", "6", "--tensorboard", text_ + "/x"}));
  EXPECT_NE(board.code, 0);
  EXPECT_THAT(board.err, HasSubstr(text_ + "/x"));
}

// The reported memory is what the run allocates, except for temporary buckets.
TEST_F(TrainFiles, DryRunPredictsTheMemory) {
  const Words layout = {"train", "--ranks",   "2",       "--data",  text_, "--batch",
                        "64",    "--json",    path("j"), "--steps", "2",   "--model",
                        "gpt2",  "--layers",  "2",       "--heads", "2",   "--width",
                        "32",    "--context", "16",      "--zero",  "1"};
  Words dry = layout;
  dry.push_back("--dry-run");
  const Result told = run(dry);
  ASSERT_EQ(told.code, 0) << told.err;
  EXPECT_THAT(told.out, HasSubstr("nothing was trained"));
  const Json planned = Json::parse(read(path("j")));
  EXPECT_EQ(planned.at("configuration").at("parallel").at("zero"), 1);
  const Result trained = run(layout);
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::vector<std::string> lines = split(read(path("j")), '\n');
  const Json memory = Json::parse(lines.back()).at("memory");
  ASSERT_EQ(planned.at("memory").size(), 2U);
  const Json& first = planned.at("memory").at(0);
  EXPECT_EQ(first.at("rank"), 0);
  for (const char* kind : {"parameters", "gradients", "optimizer"}) {
    EXPECT_EQ(first.at(kind), memory.at(kind)) << kind;
  }
  const double activations = memory.at("activations");
  EXPECT_NEAR(first.at("activations").get<double>() + first.at("logits").get<double>(), activations,
              0.03 * activations);
}

// Under a launcher, one rank reports the dry run for all ranks.
TEST_F(TrainFiles, DryRunOfALaunchersRanksTrainsNothing) {
  const Words job = {"run",   "-n",      "2",      "--no-prefix",  "--",
                     tutti(), "train",   "--data", text_,          "--steps",
                     "3",     "--batch", "64",     "--checkpoint", path("run")};
  for (const char* option : {"--dry-run", "--print-config"}) {
    Words words = job;
    words.push_back(option);
    const Result told = run(words);
    EXPECT_EQ(told.code, 0) << told.err;
    const size_t first = told.out.find("\"optimizer\"");
    EXPECT_NE(first, told.out.npos) << told.out;
    EXPECT_EQ(told.out.find("\"optimizer\"", first + 1), told.out.npos) << told.out;
    EXPECT_FALSE(std::filesystem::exists(path("run"))) << option;
    if (option == std::string("--dry-run")) {
      EXPECT_THAT(told.out,
                  AllOf(HasSubstr("ranks            2"), HasSubstr("nothing was trained")));
    }
  }
}

TEST_F(TrainFiles, BackgroundCheckpointsAndTheBestAreKept) {
  const std::string directory = path("run");
  train({"--steps", "6", "--checkpoint", directory, "--checkpoint-every", "2", "--async-checkpoint",
         "--keep-best", "--keep", "0"});
  const std::vector<std::string> lines = split(read(path("j")), '\n');
  const Json summary = Json::parse(lines.back());
  EXPECT_GE(summary.at("checkpoints"), 3);
  EXPECT_GT(summary.at("checkpoint_s"), 0);
  EXPECT_TRUE(std::filesystem::is_symlink(directory + "/best"));
  const Result told = run({"checkpoint", directory + "/best"});
  EXPECT_EQ(told.code, 0) << told.err;
}

}  // namespace
}  // namespace tutti::tool
