// Tests `tutti train --profile`: the table, the JSON and the picture of a step's time.
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

class TrainProfile : public Cli {
 protected:
  Result train(const Words& more) const {
    Words words = {"train", "--data",  text_, "--model", "gpt2",      "--layers",
                   "2",     "--heads", "2",   "--width", "32",        "--context",
                   "16",    "--ranks", "1",   "--batch", "4",         "--micro-batch",
                   "2",     "--steps", "6",   "--json",  path("json")};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  std::vector<Json> lines() const {
    std::vector<Json> lines;
    for (const std::string& line : split(read(path("json")), '\n')) {
      lines.push_back(Json::parse(line));
    }
    return lines;
  }
  std::vector<double> losses() const {
    std::vector<double> losses;
    for (const Json& line : lines()) {
      if (line.contains("step")) losses.push_back(line["loss"].get<double>());
    }
    return losses;
  }

 private:
  const std::string text_ = write_text();
};

// Returns the names of a table's rows: in lines indented by two spaces, the text before the first
// number.
std::set<std::string> rows_of(const std::string& out) {
  std::set<std::string> rows;
  for (const std::string& line : split(out, '\n')) {
    if (!line.starts_with("  ") || line.find('%') == std::string::npos) continue;
    std::string name = line.substr(2, 28);
    name.erase(name.find_last_not_of(' ') + 1);
    if (name != "kernel" && name != "unit and phase") rows.insert(name);
  }
  return rows;
}

TEST_F(TrainProfile, TableAndJsonHaveTheSameRows) {
  const Result result = train({"--profile"});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json profile = lines().back().at("profile");
  EXPECT_GT(profile.at("peak_gflops").get<double>(), 0);
  EXPECT_GT(profile.at("peak_gb_per_s").get<double>(), 0);
  EXPECT_EQ(profile.at("steps"), 4);
  std::set<std::string> rows = {"step"};
  double of_units = 0, of_kernels = 0;
  for (const Json& row : profile.at("units")) {
    const auto unit = row.at("unit").get<std::string>();
    rows.insert(cat(unit, unit.empty() ? "" : " ", row.at("phase").get<std::string>()));
    of_units += row.at("ms").get<double>();
  }
  for (const Json& row : profile.at("kernels")) {
    rows.insert(row.at("kernel").get<std::string>());
    of_kernels += row.at("ms").get<double>();
  }
  EXPECT_EQ(rows_of(result.out), rows) << result.out;
  EXPECT_THAT(rows, IsSupersetOf({"h.0 forward", "h.1 backward", "update", "other", "gemm nt",
                                  "causal_attention_backward", "gelu", "optimizer_step"}));
  const double step = profile.at("step_ms").get<double>();
  EXPECT_NEAR(of_units, step, 1e-6 * step);
  EXPECT_NEAR(of_kernels, step, 1e-6 * step);
}

TEST_F(TrainProfile, ChangesNoLoss) {
  ASSERT_EQ(train({}).code, 0);
  const std::vector<double> without = losses();
  EXPECT_FALSE(lines().back().contains("profile"));
  ASSERT_EQ(train({"--profile", "--trace", path("trace")}).code, 0);
  EXPECT_EQ(losses(), without);
  EXPECT_THAT(read(path("trace")), HasSubstr("h.0 forward"));
}

TEST_F(TrainProfile, DrawsAPicture) {
  const std::string picture = path("profile.svg");
  const Result result = train({"--profile", picture});
  if (result.err.find("not installed") != std::string::npos) GTEST_SKIP() << result.err;
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(read(picture), AllOf(HasSubstr("<svg"), HasSubstr(">h.0<"), HasSubstr(">update<"),
                                   HasSubstr(">gemm nt<")));
}

TEST_F(TrainProfile, DescribesTheFirstOfSeveralRanks) {
  const Result result = train({"--ranks", "2", "--zero", "3", "--profile"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("profile of rank 0"));
  EXPECT_EQ(result.out.find("profile of rank"), result.out.rfind("profile of rank"));
}

TEST_F(TrainProfile, RefusesAnUnsupportedFileBeforeItTrains) {
  for (const std::string& name : {path("profile.pdf"), path("nowhere/profile.svg")}) {
    const Result result = train({"--profile", name});
    EXPECT_EQ(result.code, 1) << result.out;
    EXPECT_THAT(result.err, HasSubstr(name));
    EXPECT_THAT(result.out, Not(HasSubstr("step 1/")));
    EXPECT_FALSE(std::filesystem::exists(path("json")) && !read(path("json")).empty());
  }
}

}  // namespace
}  // namespace tutti::tool
