// Tests `tutti plan`: its tables, its JSON, its exit codes and its errors.
#include <cmath>
#include <fstream>
#include <string>

#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Plan : public Cli {
 protected:
  static Words layouts(const std::string& model, const std::string& cluster) {
    return {"plan",           "--model", model,   "--cluster", cluster,
            "--global-batch", "64",      "--seq", "4096"};
  }
  Result run_with(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
};

TEST_F(Plan, RanksLayouts) {
  const std::string json = path("plan.json");
  const Result result =
      run_with(layouts("llama3-8b", "dgx-h100:4"), {"--json", json, "--show", "3", "--why"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("8.03 B parameters"), HasSubstr("32 H100-SXM-80GB"),
                                HasSubstr("% MFU"), HasSubstr("Step of the best layout: computing"),
                                HasSubstr("tutti train --model llama --layers 32")));
  const Json document = Json::parse(read(json));
  const Json& all = document["layouts"];
  ASSERT_GT(all.size(), 3u);
  double before = 0;
  for (const Json& layout : all) {
    if (!layout["fits"].get<bool>()) break;
    const double seconds = layout["step_s"].get<double>();
    EXPECT_GE(seconds, before);
    EXPECT_LT(layout["step_s_low"].get<double>(), seconds);
    EXPECT_GT(layout["step_s_high"].get<double>(), seconds);
    EXPECT_LE(layout["memory_bytes"].get<double>(), 0.9 * 80 * (1 << 30));
    EXPECT_NE(layout["why"].get<std::string>(), "");
    EXPECT_THAT(layout["command"].get<std::string>(), HasSubstr("tutti train"));
    before = seconds;
  }
}

TEST_F(Plan, KeepsFixedOptions) {
  const std::string json = path("plan.json");
  const Result result = run_with(layouts("llama3-70b", "8xH100 x 16, NVLink 450, IB 8x50"),
                                 {"--tp", "4", "--pp", "4", "--zero", "1", "--json", json});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json document = Json::parse(read(json));
  for (const Json& layout : document["layouts"]) {
    EXPECT_EQ(layout["tp"], 4);
    EXPECT_EQ(layout["pp"], 4);
    EXPECT_EQ(layout["zero"], 1);
  }
}

TEST_F(Plan, NamesTheNearestLayoutIfNothingFits) {
  const std::string json = path("plan.json");
  const Result result = run_with(layouts("llama3-405b", "dgx-h100"), {"--json", json});
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("no layout fits"), HasSubstr("the layout that comes closest, dp")));
  const Json document = Json::parse(read(json));
  EXPECT_EQ(document["fitting"], 0);
  EXPECT_FALSE(document["layouts"][0]["fits"].get<bool>());
}

// Unsupported models are planned but not trained.
TEST_F(Plan, HasNoCommandForUnsupportedModels) {
  const std::string json = path("plan.json");
  ASSERT_EQ(run_with(layouts("deepseek-v3", "dgx-h200:32"), {"--json", json}).code, 0);
  const Json document = Json::parse(read(json));
  EXPECT_TRUE(document["layouts"][0]["command"].is_null());
}

TEST_F(Plan, PredictsAndFitsTables) {
  const std::string table = path("runs.csv");
  std::ofstream(table)
      << "id,split,gpu,gpus,model,layers,hidden,heads,vocab,seq,tp,pp,mbs,gbs,precision,step_s\n"
         "a,calibrate,A100-SXM-80GB,8,gpt,24,2048,16,51200,2048,1,1,4,64,bf16,2\n"
         "b,held,A100-SXM-80GB,8,gpt,24,2048,16,51200,2048,2,1,4,64,bf16,2\n"
         "c,held,A100-SXM-80GB,8,gpt,,2048,16,51200,2048,2,1,4,64,bf16,2\n";
  const std::string json = path("predicted.json");
  const Result predicted = run({"plan", "--predict", table, "--json", json});
  ASSERT_EQ(predicted.code, 0) << predicted.err;
  EXPECT_THAT(predicted.out, HasSubstr("2 of 3 runs predicted"));
  const Json document = Json::parse(read(json));
  const Json& rows = document["rows"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["id"], "a");
  EXPECT_GT(rows[0]["step_s"].get<double>(), 0);
  EXPECT_GT(rows[0]["memory_bytes"].get<double>(), 0);
  EXPECT_THAT(rows[2]["reason"].get<std::string>(), HasSubstr("the number of layers"));
  const std::string ours = path("ours.json");
  const Result fitted = run({"plan", "--fit", table, "--json", ours});
  ASSERT_EQ(fitted.code, 0) << fitted.err;
  EXPECT_THAT(fitted.out, HasSubstr("fitted to 1 runs"));
  EXPECT_EQ(run({"plan", "--predict", table, "--efficiencies", ours}).code, 0);
}

TEST_F(Plan, GivesTheBestModelForABudget) {
  const std::string json = path("budget.json");
  const Result result = run({"plan", "--budget", "4.3e23", "--json", json});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("28.2"), HasSubstr("2540.6"), HasSubstr("Kaplan")));
  const Json document = Json::parse(read(json));
  EXPECT_NEAR(document["methods"][0]["parameters"].get<double>(), 28.2e9, 0.1e9);
  const std::string table = path("laws.csv");
  std::ofstream out(table);
  out << "N,D,L\n";
  for (const double n : {1e8, 1e9, 1e10}) {
    for (const double d : {1e9, 1e10, 1e11}) {
      out << n << ',' << d << ',' << 1.7 + 400 / std::pow(n, 0.34) + 400 / std::pow(d, 0.28)
          << '\n';
    }
  }
  out.close();
  const std::string law = path("law.json");
  const Result fitted = run({"plan", "--fit-laws", table, "--json", law});
  ASSERT_EQ(fitted.code, 0) << fitted.err;
  EXPECT_THAT(run({"plan", "--budget", "1e21", "--laws", law}).out, HasSubstr("fitted"));
}

// 175 B parameters in fp16 take 350 GB. For 7.5 B parameters on 64 ranks, the ZeRO paper gives 120,
// 31.4, 16.6 and 1.9 GB per rank.
TEST_F(Plan, PrintsTheMemoryOfAModel) {
  const std::string json = path("memory.json");
  ASSERT_EQ(run({"plan", "--memory", "--model", "175B", "--json", json}).code, 0);
  EXPECT_NEAR(Json::parse(read(json))["types"]["fp16"].get<double>(), 350e9, 1);
  const Result zero = run({"plan", "--memory", "--model", "7.5B", "-n", "64"});
  for (const char* figure : {"120.00", "31.41", "16.64", "1.88"}) {
    EXPECT_THAT(zero.out, HasSubstr(figure));
  }
  const Result residual = run({"plan", "--memory", "--model", "gpt2-xl", "--global-batch", "32",
                               "--seq", "1024", "--json", json});
  ASSERT_EQ(residual.code, 0) << residual.err;
  EXPECT_NEAR(Json::parse(read(json))["residual"]["activations"].get<double>(), 60e9, 1e9);
  EXPECT_THAT(run({"plan", "--memory", "--model", "1B", "--global-batch", "1", "--seq", "1"}).err,
              HasSubstr("need a --model with layers"));
}

// Layouts divide 48 hosts better than many larger numbers.
TEST_F(Plan, FindsTheSmallestNumberOfHosts) {
  const std::string json = path("days.json");
  const auto asked = [&](int hosts, const Words& more) {
    Words words = {"plan",  "--model", "llama3-70b", "--cluster", cat("dgx-h100:", hosts),
                   "--seq", "8192",    "--tokens",   "2T",        "--global-batch",
                   "512",   "--json",  json};
    EXPECT_EQ(run_with(words, more).code, 0) << hosts;
    return Json::parse(read(json));
  };
  const Json fewest = asked(1, {"--days", "60"});
  const int hosts = fewest["hosts"].get<int>();
  EXPECT_LE(fewest["days"].get<double>(), 60);
  EXPECT_EQ(asked(hosts, {})["layouts"][0]["days"], fewest["days"]);
  for (int fewer = hosts - 1; fewer >= hosts * 3 / 4; --fewer) {
    EXPECT_GT(asked(fewer, {})["layouts"][0]["days"].get<double>(), 60) << fewer;
  }
}

TEST_F(Plan, AnswersQuestions) {
  const std::string json = path("answer.json");
  const Words small = layouts("llama3-8b", "dgx-h100");
  const Result days = run_with(small, {"--tokens", "1B"});
  EXPECT_THAT(days.out, HasSubstr("1B tokens take"));
  ASSERT_EQ(run_with(small, {"--tokens", "100B", "--days", "10", "--json", json}).code, 0);
  const Json fewest = Json::parse(read(json));
  EXPECT_LE(fewest["days"].get<double>(), 10);
  EXPECT_GE(fewest["hosts"].get<int>(), 1);
  const Result never = run_with(small, {"--tokens", "1000T", "--days", "1"});
  EXPECT_NE(never.code, 0);
  EXPECT_THAT(never.err, HasSubstr("--global-batch"));
  ASSERT_EQ(run_with(small, {"--largest", "sequence", "--json", json}).code, 0);
  const Json longest = Json::parse(read(json));
  EXPECT_GE(longest["seq"].get<int64_t>(), 8192);
  // Twice the length does not fit.
  Words twice = {"plan",      "--model",  "llama3-8b",
                 "--cluster", "dgx-h100", "--global-batch",
                 "64",        "--seq",    std::to_string(2 * longest["seq"].get<int64_t>())};
  EXPECT_THAT(run(twice).err, HasSubstr("no layout fits"));
  ASSERT_EQ(run_with(small, {"--largest", "micro-batch", "--dp", "8", "--recompute", "full",
                             "--json", json})
                .code,
            0);
  EXPECT_GE(Json::parse(read(json))["micro_batch"].get<int>(), 1);
}

TEST_F(Plan, ReportsMissingAndWrongOptions) {
  EXPECT_THAT(run({"plan"}).err, HasSubstr("--model is required"));
  EXPECT_THAT(run({"plan", "--model", "gpt2", "--cluster", "dgx-h100"}).err,
              HasSubstr("--global-batch is required"));
  EXPECT_THAT(run(layouts("lama3-8b", "dgx-h100")).err, HasSubstr("did you mean llama3-8b?"));
  EXPECT_THAT(run(layouts("gpt2", "8xZ9, PCIe 32")).err, HasSubstr("GPU 'Z9' is unknown"));
  EXPECT_THAT(run_with(layouts("gpt2", "dgx-h100"), {"--tp", "5"}).err,
              HasSubstr("no layout of 8 processors is valid"));
  EXPECT_THAT(run({"plan", "--budget", "much"}).err, HasSubstr("--budget 'much'"));
  EXPECT_THAT(run({"plan", "--budget", "1e21", "--predict", "x.csv"}).err,
              HasSubstr("give one of"));
  EXPECT_THAT(run({"plan", "--fit", "x.csv"}).err, HasSubstr("--fit requires --json"));
}

// Plans ranks of this host. The printed command trains with the predicted memory.
TEST_F(Plan, CommandForThisHostTrains) {
  const std::string model = path("model.json");
  std::ofstream(model) << R"({"model": {"kind": "gpt2", "layers": 2, "heads": 2, "width": 32,)"
                       << R"( "context": 16, "vocabulary": 256}})";
  const std::string json = path("plan.json");
  const std::string picture = path("plan.svg");
  const Result planned =
      run({"plan", "--model", model, "--cluster", "localhost", "--ranks", "2", "--global-batch",
           "8", "--seq", "16", "--pp", "2", "--json", json, "--plot", picture, "--why"});
  ASSERT_EQ(planned.code, 0) << planned.err;
  EXPECT_THAT(read(picture), AllOf(HasSubstr("Memory of a rank, by stage"), HasSubstr("stage 1")));
  const Json document = Json::parse(read(json));
  const Json& best = document["layouts"][0];
  EXPECT_EQ(best["pp"], 2);
  EXPECT_GT(best["step_s"].get<double>(), 0);
  Words words = split(best["command"].get<std::string>(), ' ');
  words.erase(words.begin());
  const std::string log = path("train.jsonl");
  const std::string text = write_text();
  for (const char* word : {"--data", text.c_str(), "--steps", "2", "--json", log.c_str()}) {
    words.emplace_back(word);
  }
  const Result trained = run(words);
  ASSERT_EQ(trained.code, 0) << trained.err;
  double bytes = 0;  // memory of rank 0
  for (const std::string& line : split(read(log), '\n')) {
    if (line.find("\"memory\"") == std::string::npos) continue;
    const Json last = Json::parse(line);
    for (const Json::Member& kind : last["memory"].items()) bytes += kind.value.get<double>();
  }
  EXPECT_GT(bytes, 0);
  EXPECT_LE(bytes, 1.02 * best["memory_bytes"].get<double>());
}

// Wrong handling of these arguments causes a division by zero, or layouts that no run can have.
TEST_F(Plan, AcceptsOddOptionsForThisHost) {
  const Words train = {"train", "--data", write_text(), "--steps", "2", "--batch", "8"};
  const auto planned = [&](const Words& more) {
    Words words = train;
    words.insert(words.end(), more.begin(), more.end());
    for (const char* word : {"--plan", "auto", "--dry-run"}) words.emplace_back(word);
    return run(words);
  };
  const Words gpt = {"--model", "gpt2",    "--layers", "4",         "--heads",
                     "2",       "--width", "32",       "--context", "16"};
  const auto with = [](Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  EXPECT_THAT(planned(with(gpt, {"--ranks", "2", "--tp", "65536", "--pp", "65536"})).err,
              HasSubstr("not a multiple of the given dp x tp x cp x pp"));
  EXPECT_THAT(planned(with(gpt, {"--ranks", "300"})).err, HasSubstr("exceed the limit of 256"));
  const Result interleaved =
      planned(with(gpt, {"--ranks", "2", "--pp", "2", "--schedule", "interleaved"}));
  EXPECT_EQ(interleaved.code, 0) << interleaved.err;
  // Models without a tensor or context axis are still divided into stages.
  const Result mlp = planned({"--ranks", "2", "--pp", "2"});
  EXPECT_EQ(mlp.code, 0) << mlp.err;
  EXPECT_EQ(planned({"--ranks", "2", "--pp", "2", "--cut", "measured"}).code, 0);
  EXPECT_THAT(planned(with(gpt, {"--ranks", "2", "--ep", "2"})).err, HasSubstr("has no experts"));
  const Result experts = planned({"--model", "mixtral", "--layers", "2", "--heads", "2", "--width",
                                  "32", "--context", "16", "--ranks", "2", "--ep", "2"});
  ASSERT_EQ(experts.code, 0) << experts.err;
  EXPECT_THAT(experts.out, HasSubstr("\"ep\": 2"));
  EXPECT_EQ(experts.out.find("predicted"), std::string::npos) << "that would be no configuration";
}

TEST_F(Plan, TrainingUsesThePlan) {
  const Words train = {"train", "--data",  write_text(), "--model", "gpt2", "--layers",
                       "2",     "--heads", "2",          "--width", "32",   "--context",
                       "16",    "--batch", "8",          "--steps", "2",    "--ranks",
                       "2",     "--plan",  "auto"};
  const Result result = run(train);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("plan             dp"),
                                HasSubstr("ms per step predicted"), HasSubstr("validation loss")));
  // In a run that a launcher has started there is nothing left to plan.
  Words launched = {"run", "-n", "2", tutti()};
  launched.insert(launched.end(), train.begin(), train.end());
  const Result refused = run(launched);
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.err, HasSubstr("--plan auto"));
}

TEST_F(Plan, TakesTopologiesAsClusters) {
  const Words words = {
      "plan",           "--model", "llama3-8b", "--cluster", "fat-tree:hosts=4,gpus=8",
      "--global-batch", "64",      "--seq",     "4096"};
  const Result named = run_with(words, {"--gpu", "H100"});
  ASSERT_EQ(named.code, 0) << named.err;
  EXPECT_THAT(named.out, HasSubstr("32 H100-SXM-80GB"));
  EXPECT_THAT(run(words).err, HasSubstr("--gpu H100"));
  EXPECT_THAT(run_with(layouts("llama3-8b", "ring:8"), {}).err, HasSubstr("has no GPUs"));
}

}  // namespace
}  // namespace tutti::tool
