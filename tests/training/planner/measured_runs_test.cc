// Tests tables of measured runs: the meaning of rows, errors in tables, and the accuracy of
// predictions for published runs, if their data are present.
#include "training/planner/measured_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file_text.h"
#include "tests/support/test_data.h"

namespace tutti::training::planner {
namespace {

using ::testing::HasSubstr;

constexpr char kColumns[] =
    "id,split,use,gpu,gpus,gpus_per_node,intra_GBps,inter_GBps,model,layers,hidden,ffn,heads,"
    "kv_heads,vocab,seq,tp,pp,vp,dp,zero,mbs,gbs,precision,recompute,step_s,tok_s_gpu,notes\n";

MeasuredRun run_of(const std::string& row) {
  return read_measured_runs(kColumns + row + "\n", "t.csv").at(0);
}

TEST(MeasuredRuns, ColumnNamesDetermineTheFields) {
  const MeasuredRun run = run_of(
      "7,calibrate,time,H100-SXM-80GB,64,8,450,50,llama3-70b,80,8192,28672,64,8,128256,8192,4,8,5,"
      "2,"
      "1,1,256,FP8,none,,1633,\"a, b\"");
  ASSERT_EQ(run.reason, "");
  EXPECT_EQ(run.id, "7");
  EXPECT_TRUE(run.calibrates);
  EXPECT_EQ(run.layout.tensor, 4);
  EXPECT_EQ(run.layout.stages, 8);
  EXPECT_EQ(run.layout.virtual_stages, 5);
  EXPECT_EQ(run.layout.data, 2);
  EXPECT_EQ(run.open.size(), 1u);
  EXPECT_EQ(run.job.cluster.hosts, 8);
  EXPECT_EQ(run.job.precision, Precision::eight);
  EXPECT_TRUE(run.job.model.gated);
  EXPECT_EQ(run.job.model.head_width, 128);
  EXPECT_NEAR(*run.seconds, 256.0 * 8192 / 64 / 1633, 1e-9);
}

TEST(MeasuredRuns, LeaveUnstatedFieldsOpen) {
  const MeasuredRun run = run_of(
      "1,held,time,A100-SXM-80GB,64,8,300,25,gpt,48,6144,24576,48,48,51200,2048,8,4,,2,1,,64,bf16,"
      "full,,,");
  ASSERT_EQ(run.reason, "");
  EXPECT_GT(run.open.size(), 1u);
  const RunPrediction best = predict(run, {});
  for (const Layout& layout : run.open) {
    EXPECT_LE(best.time.total(), step_time(run.job, layout, {}).total());
  }
  EXPECT_LT(best.seconds.low, best.time.total());
  EXPECT_GT(best.seconds.high, best.time.total());
}

TEST(MeasuredRuns, ReportWhyTheyCannotBePredicted) {
  const auto reason = [](const std::string& row) { return run_of(row).reason; };
  const std::string rest = ",2048,8,4,,2,1,1,64,bf16,full,10,,";
  EXPECT_THAT(reason("1,held,time,Z9,64,8,300,25,gpt,48,6144,24576,48,48,51200" + rest),
              HasSubstr("'Z9' is not a known processor"));
  EXPECT_THAT(reason("1,held,time,A100,64,8,300,25,gpt,,6144,24576,48,48,51200" + rest),
              HasSubstr("the number of layers"));
  EXPECT_THAT(reason("1,held,time,A100,63,8,300,25,gpt,48,6144,24576,48,48,51200" + rest),
              HasSubstr("63 processors are not a multiple"));
  EXPECT_THAT(reason("1,held,time,A100,64,8,300,25,gpt,48,6144,24576,48,48,51200,2048,8,4,,2,1,64,"
                     "64,bf16,full,10,,"),
              HasSubstr("a batch of 64"));
  EXPECT_THAT(
      reason("1,held,time,A100,64,8,300,25,gpt,48,6144,24576,48,48,51200,2048,8,4,,2,1,1,64,"
             "bf16,full,0.001,,"),
      HasSubstr("TFLOP/s of a processor with a peak of 312"));
}

// The counts exceed int, and their products exceed int64_t.
TEST(MeasuredRuns, SurviveAbsurdCounts) {
  const std::string model = "gpt,48,6144,24576,48,48,51200";
  for (const char* axis : {"4294967296", "4294967297", "999999999999"}) {
    for (const std::string& axes :
         {std::string(axis) + ",4,,2,1,1,64", "8," + std::string(axis) + ",,2,1,1,64",
          "8,4," + std::string(axis) + ",2,1,1,64", "8,4,,2," + std::string(axis) + ",1,64"}) {
      const MeasuredRun run =
          run_of("1,held,time,A100,64,8,300,25," + model + ",2048," + axes + ",bf16,full,10,,");
      EXPECT_THAT(run.reason, HasSubstr(axis)) << axes;
    }
  }
  const MeasuredRun large = run_of("1,held,time,A100,64,8,300,25," + model +
                                   ",900000000,8,4,,2,1,400000000,900000000,bf16,full,,,");
  ASSERT_EQ(large.reason, "");
  EXPECT_GT(predict(large, {}).time.transfers, 0);
}

TEST(MeasuredRuns, RefuseInvalidTables) {
  const auto error_of = [](const std::string& text) -> std::string {
    try {
      read_measured_runs(text, "t.csv");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of(""), HasSubstr("t.csv is empty"));
  EXPECT_THAT(error_of("a,b\n1,2\n"), HasSubstr("no column 'gpu'"));
  EXPECT_THAT(error_of("gpu,gpus,model,seq,gbs\n\"A100"), HasSubstr("opens a quote"));
}

// The runs are those of a machine that is a third slower than its efficiencies predict. The fit
// must find this factor.
TEST(MeasuredRuns, FitRecognizesASlowerMachine) {
  std::string table = kColumns;
  for (const int micro_batch : {1, 2, 4, 8}) {
    for (const int layers : {12, 24, 36, 48}) {
      table += "1,calibrate,time,A100-SXM-80GB,8,8,300,25,gpt," + std::to_string(layers) +
               ",2048,8192,16,16,51200,2048,1,1,1,8,1," + std::to_string(micro_batch) +
               ",64,bf16,none,1,,\n";
    }
  }
  std::vector<MeasuredRun> runs = read_measured_runs(table, "t.csv");
  for (MeasuredRun& run : runs) run.seconds = 1.3 * predict(run, {}).time.total();
  const FittedEfficiencies fitted = fit_efficiencies(runs);
  EXPECT_EQ(fitted.runs, 16u);
  for (const MeasuredRun& run : runs) {
    EXPECT_NEAR(predict(run, fitted.efficiencies).time.total() / *run.seconds, 1, 0.1);
  }
  const Efficiencies again = parse_efficiencies(to_json(fitted.efficiencies));
  EXPECT_NEAR(again[Knob::memory], fitted.efficiencies[Knob::memory], 1e-9);
}

double part_of(std::vector<double> errors, double part) {
  std::ranges::sort(errors);
  return errors[static_cast<size_t>(part * static_cast<double>(errors.size() - 1))];
}

// No efficiency was fitted to these published runs.
TEST(MeasuredRuns, PredictsRunsOfOthers) {
  const std::filesystem::path folder = testing::test_data("plan");
  if (folder.empty()) GTEST_SKIP() << testing::kNoTestData;
  const std::string path = (folder / "truth.csv").string();
  std::vector<double> times;
  std::vector<double> memories;
  size_t inside = 0;
  for (const MeasuredRun& run : read_measured_runs(file_text(path, FileKind::profile), path)) {
    if (!run.reason.empty() || run.calibrates) continue;
    const RunPrediction p = predict(run, {});
    if (run.seconds) {
      times.push_back(std::abs(p.time.total() / *run.seconds - 1));
      if (p.seconds.low <= *run.seconds && *run.seconds <= p.seconds.high) ++inside;
    }
    if (run.memory) {
      const double scale =
          run.memory_rules.measure == MemoryMeasure::part_of_activations ? 1 : kGiB;
      memories.push_back(std::abs(p.measured_memory / scale / *run.memory - 1));
    }
  }
  ASSERT_GT(times.size(), 200u);
  const double coverage = static_cast<double>(inside) / static_cast<double>(times.size());
  std::printf(
      "time: %zu runs, median error %.1f%%, 90th percentile %.1f%%, %.0f%% in the interval\n"
      "memory: %zu runs, median error %.1f%%\n",
      times.size(), 100 * part_of(times, 0.5), 100 * part_of(times, 0.9), 100 * coverage,
      memories.size(), 100 * part_of(memories, 0.5));
  EXPECT_LE(part_of(times, 0.5), 0.08);
  EXPECT_LE(part_of(times, 0.9), 0.2);
  EXPECT_GE(coverage, 0.85);
  EXPECT_LE(coverage, 0.95);
  EXPECT_LE(part_of(memories, 0.5), 0.04);
}

}  // namespace
}  // namespace tutti::training::planner
