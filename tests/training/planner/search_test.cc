// Tests the search for layouts against an exhaustive search: it must find the best of all valid
// layouts.
#include "training/planner/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/error.h"

namespace tutti::training::planner {
namespace {

using ::testing::HasSubstr;

Job job_on(const std::string& cluster, const std::string& model, int64_t batch, int64_t sequence) {
  Job job;
  job.model = load_model_shape(model);
  job.cluster = load_cluster(cluster);
  job.processor = *processor_named(job.cluster.gpu);
  job.global_batch = batch;
  job.sequence = sequence;
  return job;
}

// Tries all values of all axes, except forbidden combinations. Returns the best layout.
PlannedLayout exhaustive(const Job& job, double memory) {
  PlannedLayout best;
  const int ranks = job.cluster.ranks();
  const Efficiencies efficiencies;
  for (int tensor = 1; tensor <= 8; ++tensor) {
    for (int stages = 1; stages <= ranks; ++stages) {
      for (int context = 1; context <= ranks; ++context) {
        for (int data = 1; data <= ranks; ++data) {
          if (tensor * stages * context * data != ranks) continue;
          for (int expert = 1; expert <= ranks; ++expert) {
            for (int64_t size = 1; size <= 32; ++size) {
              for (int chunks = 1; chunks <= 16; ++chunks) {
                for (int rest = 0; rest < 12; ++rest) {
                  const Layout layout{.data = data,
                                      .tensor = tensor,
                                      .stages = stages,
                                      .context = context,
                                      .expert = expert,
                                      .virtual_stages = chunks,
                                      .zero = rest % 4,
                                      .sequence_parallel = tensor > 1,
                                      .micro_batch = size,
                                      .recompute = static_cast<Recompute>(rest / 4)};
                  if (!why_illegal(job, layout).empty()) continue;
                  const PlannedLayout planned = price(job, layout, efficiencies, memory);
                  if (!planned.fits) continue;
                  if (!best.fits || planned.time.total() < best.time.total()) best = planned;
                }
              }
            }
          }
        }
      }
    }
  }
  return best;
}

TEST(Search, FindsTheBestOfAllLayouts) {
  for (const Job& job : {job_on("8xH100, NVLink 450", "llama3-8b", 32, 4096),
                         job_on("4xA100 x 3, NVLink 300, IB 4x25", "gpt2-xl", 24, 1024),
                         job_on("8xH100, NVLink 450", "mixtral-8x7b", 16, 2048),
                         job_on("1xA100, NVLink 300", "gpt2", 8, 512)}) {
    const double memory = 72 * kGiB;
    const PlannedLayout best = exhaustive(job, memory);
    Constraints constraints;
    constraints.memory = memory;
    const Plans plans = search(job, constraints, {}, 5);
    SCOPED_TRACE(job.model.name + ": " + to_text(plans.layouts.front().layout));
    EXPECT_EQ(plans.layouts.front().fits, best.fits);
    if (best.fits) {
      EXPECT_DOUBLE_EQ(plans.layouts.front().time.total(), best.time.total());
    }
  }
}

TEST(Search, KeepsTheGivenValues) {
  const Job job = job_on("dgx-h100:4", "llama3-8b", 64, 4096);
  Constraints constraints;
  constraints.tensor = 4;
  constraints.stages = 2;
  constraints.zero = 1;
  constraints.micro_batch = 2;
  constraints.recompute = Recompute::full;
  for (const PlannedLayout& planned : search(job, constraints, {}, 50).layouts) {
    EXPECT_EQ(planned.layout.tensor, 4);
    EXPECT_EQ(planned.layout.stages, 2);
    EXPECT_EQ(planned.layout.zero, 1);
    EXPECT_EQ(planned.layout.micro_batch, 2);
    EXPECT_EQ(planned.layout.recompute, Recompute::full);
    EXPECT_EQ(planned.layout.ranks(), 32);
  }
  constraints.tensor = 3;
  try {
    search(job, constraints, {}, 5);
    FAIL() << "32 heads are cut by 3";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no layout of 32 processors"));
  }
}

TEST(Search, NamesTheSmallestIfNothingFits) {
  const Job job = job_on("dgx-a100", "megatron-1008b", 8, 2048);
  const Plans plans = search(job, {}, {}, 5);
  EXPECT_EQ(plans.fitting, 0u);
  ASSERT_FALSE(plans.layouts.empty());
  for (const PlannedLayout& planned : plans.layouts) {
    EXPECT_GE(planned.memory.total(), plans.layouts.front().memory.total());
  }
}

// In the paper (Narayanan et al., 2021, table 1), tensor parallelism stays inside a host, and data
// parallelism uses the remaining ranks.
TEST(Search, PicksThePapersShapeForWeakScaling) {
  struct Row {
    const char* model;
    int hosts;
    int64_t batch;
  };
  for (const Row& row : {Row{"megatron-1.7b", 4, 512},
                         {"megatron-3.6b", 8, 512},
                         {"megatron-7.5b", 16, 512},
                         {"megatron-18.4b", 32, 1024},
                         {"megatron-39.1b", 64, 1536},
                         {"megatron-76.1b", 128, 1792},
                         {"megatron-145.6b", 192, 2304},
                         {"megatron-310.1b", 240, 2160},
                         {"megatron-529.6b", 315, 2520},
                         {"megatron-1008b", 384, 3072}}) {
    Job job = job_on("8xA100 x " + std::to_string(row.hosts) + ", NVLink 300, IB 8x25", row.model,
                     row.batch, 2048);
    job.software = Software::megatron_2021;
    job.has_flash_attention = false;
    Constraints constraints;
    constraints.zero = 0;
    constraints.recompute = Recompute::full;
    const Plans plans = search(job, constraints, {}, 1);
    const Layout& best = plans.layouts.front().layout;
    SCOPED_TRACE(std::string(row.model) + ": " + to_text(best));
    EXPECT_GT(plans.fitting, 0u);
    EXPECT_LE(best.tensor, 8);
    EXPECT_GT(best.data, 1);
    if (parameters(job.model) > 30e9) {
      EXPECT_GT(best.tensor * best.stages, 8);
    }
    if (parameters(job.model) < 4e9) {
      EXPECT_EQ(best.stages, 1);
    }
  }
}

TEST(Search, LargeModelOnManyProcessorsIsSearchedCompletely) {
  const Job job = job_on("dgx-h100:2048", "llama3-405b", 2048, 8192);
  const Plans plans = search(job, {}, {}, 10);
  EXPECT_GT(plans.considered, 5000u);
  EXPECT_GT(plans.fitting, 0u);
  EXPECT_EQ(plans.layouts.size(), 10u);
}

TEST(Search, CommandsNameOurModels) {
  const Job llama = job_on("8xH100, NVLink 450", "llama3-8b", 32, 4096);
  const Layout layout{.data = 2, .tensor = 4, .sequence_parallel = true, .micro_batch = 2};
  const std::string command = train_command(llama, layout);
  EXPECT_THAT(command, HasSubstr("tutti train --model llama --layers 32 --width 4096 --heads 32 "
                                 "--kv-heads 8 --ffn-hidden-size 14336"));
  EXPECT_THAT(command, HasSubstr("--ranks 8 --dp 2 --tp 4 --sp --zero 1"));
  EXPECT_EQ(train_command(job_on("8xH100, NVLink 450", "deepseek-v3", 8, 4096), layout), "");
}

}  // namespace
}  // namespace tutti::training::planner
