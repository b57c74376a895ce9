// Tests the memory and traffic of each ZeRO stage against the formulas of Rajbhandari et al. (ZeRO,
// 2020, figure 1 and section 7) for Psi parameters in bf16 with AdamW on N ranks. Ranks are
// threads, connected by TCP; bytes are counted where they leave the process.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <tuple>
#include <utility>
#include <vector>

#include "base/settings.h"
#include "base/text.h"
#include "tests/training/support/tiny_run.h"

namespace {
std::atomic<int64_t> bytes_on_the_wire = 0;
}  // namespace

// Replaces the C library's function, by which the TCP transport sends all messages, to count bytes.
extern "C" ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  const long sent = ::syscall(SYS_sendmsg, socket, message, flags);
  if (sent > 0) bytes_on_the_wire += sent;
  return sent;
}

namespace tutti::training {
namespace {

using testing::TinyRank;
using testing::TinyRun;
using tutti::testing::run_ranks;

double parameters_of(Model& model) {
  double count = 0;
  for (const ParameterSpec& spec : model.parameters().specs()) {
    count += static_cast<double>(spec.count());
  }
  return count;
}

// Ways in which a rank trains its part of a step.
enum class Kind {
  one_pass,     // one micro-batch: 16-bit gradients
  accumulated,  // two micro-batches: f32 sums of gradients (in stages 2 and 3, sums of shards)
  rounded,      // one micro-batch, without masters
};

TinyRun large_run(int stage, int ranks, Kind kind) {
  TinyRun run;
  run.model = {.layers = 13, .heads = 4, .width = 256, .context = 8};
  run.replica.storage = {.stage = stage, .dtype = DType::bf16};
  run.replica.stochastic_rounding = kind == Kind::rounded;
  run.batch = static_cast<uint64_t>(kind == Kind::accumulated ? 2 * ranks : ranks);
  run.steps = 1;
  return run;
}

// Bytes per parameter on each of N ranks. `sent` times (N - 1) / N is the number of bytes that a
// rank sends per step.
struct Formula {
  double parameters;
  double gradients;
  double masters;
  double moments;
  double sent;
};

Formula formula(int stage, double n, Kind kind) {
  const double gradient = kind == Kind::accumulated ? 4 : 2;
  // Stages 2 and 3 reduce the gradients of each micro-batch over ranks.
  const double sums = stage >= 2 && kind == Kind::accumulated ? 2 : 1;
  // Values are gathered once per step, as part of the all-reduce or after the reduce-scatter. Stage
  // 3 gathers them for each forward and each backward pass instead.
  const double gathers = stage < 3 ? 1 : kind == Kind::accumulated ? 4 : 2;
  return {.parameters = stage < 3 ? 2 : 2 / n,
          .gradients = stage >= 2 ? gradient / n : gradient,
          .masters = kind == Kind::rounded ? 0
                     : stage < 1           ? 4
                                           : 4 / n,
          .moments = stage < 1 ? 8 : 8 / n,
          .sent = stage == 0 ? 2 * gradient : sums * gradient + gathers * 2};
}

struct Measured {
  MemoryReport memory;
  double told = 0;  // bytes sent in a step, according to the replica's own count
};

// Uses sockets for all messages, so that sendmsg() counts their bytes.
class OverTcp {
 public:
  OverTcp() { settings().set("TUTTI_TRANSPORT", "tcp"); }
  ~OverTcp() { settings().set("TUTTI_TRANSPORT", "auto"); }
};

class Costs : public ::testing::TestWithParam<std::tuple<int, int, Kind>> {
 private:
  const OverTcp over_tcp_;
};

TEST_P(Costs, FollowTheFormulas) {
  const auto [stage, ranks, kind] = GetParam();
  const TinyRun run = large_run(stage, ranks, kind);
  Gpt model(run.model);
  const double psi = parameters_of(model);
  ASSERT_GE(psi, 10e6);
  std::vector<Measured> measured(static_cast<size_t>(ranks));
  int64_t wire = 0;
  run_ranks(ranks, [&](const Job& job) {
    TinyRank rank(job, run);
    Measured& own = measured[static_cast<size_t>(job.rank)];
    rank.replica.finish_values();
    rank.replica.world().barrier();
    if (job.rank == 0) wire -= bytes_on_the_wire;
    rank.replica.world().barrier();
    const double before = rank.replica.bytes_sent();
    rank.step();
    rank.replica.finish_values();
    own = {rank.replica.memory(), rank.replica.bytes_sent() - before};
    rank.replica.world().barrier();
    if (job.rank == 0) wire += bytes_on_the_wire;
  });
  const Formula expected = formula(stage, ranks, kind);
  for (const Measured& rank : measured) {
    const StorageBytes& storage = rank.memory.storage;
    const auto near = [&](int64_t bytes, double per_parameter) {
      EXPECT_NEAR(static_cast<double>(bytes) / psi, per_parameter, 0.02 * per_parameter);
    };
    near(storage.parameters, expected.parameters);
    near(storage.gradients, expected.gradients);
    near(storage.masters, expected.masters);
    near(rank.memory.optimizer, expected.moments);
    // The formulas do not include padding.
    EXPECT_LT(static_cast<double>(storage.padding), 0.01 * 16 * psi);
    if (stage < 2) {
      EXPECT_EQ(storage.gathered, 0);
    }
    EXPECT_LT(static_cast<double>(storage.gathered), (kind == Kind::accumulated ? 2.4 : 1.2) * psi)
        << "a few buckets of 2 to 3 MB, of sums twice that";
    const double volume = expected.sent * psi * (ranks - 1) / ranks;
    EXPECT_NEAR(rank.told, volume, 0.01 * volume);
  }
  // The sum over all ranks; it also contains headers and small messages.
  const double all = expected.sent * psi * (ranks - 1);
  EXPECT_NEAR(static_cast<double>(wire), all, 0.01 * all + 1e5);
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<int, int, Kind>>& info) {
  constexpr std::array kKinds = {"", "Accumulated", "Rounded"};
  return cat("Stage", std::get<0>(info.param), "On", std::get<1>(info.param),
             kKinds[static_cast<size_t>(std::get<2>(info.param))]);
}

INSTANTIATE_TEST_SUITE_P(Zero, Costs,
                         ::testing::Combine(::testing::Values(0, 1, 2, 3),
                                            ::testing::Values(1, 2, 4, 8),
                                            ::testing::Values(Kind::one_pass)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Kinds, Costs,
                         ::testing::Combine(::testing::Values(0, 1, 2, 3), ::testing::Values(2),
                                            ::testing::Values(Kind::accumulated, Kind::rounded)),
                         name_of);

// The layers have 768 x 1024, 1024 x 1024 and 256 x 1024 weights (M x N), and each rank has K = 4
// samples. Each layer sends K (M + N) values instead of 2 M N.
TEST(Factors, SendTheBytesThatAreCounted) {
  const OverTcp over_tcp;
  for (const auto& [ranks, stage] : {std::pair(2, 0), std::pair(4, 0), std::pair(3, 1)}) {
    TinyRun run;
    run.mlp = {.context = 8, .embedding = 96, .hidden = 1024, .layers = 2, .vocabulary = 256};
    run.replica.storage.stage = stage;
    run.replica.factors.layers = FactorLayers::automatic;
    run.batch = static_cast<uint64_t>(4 * ranks);
    run.micro_batch = 2;
    run.steps = 1;
    double expected = 4.0 * ranks * (1792 + 2048 + 1280) * sizeof(float);
    int64_t wire = 0;
    double psi = 0;
    run_ranks(ranks, [&](const Job& job) {
      TinyRank rank(job, run);
      rank.replica.finish_values();
      rank.replica.world().barrier();
      if (job.rank == 0) {
        wire -= bytes_on_the_wire;
        ASSERT_EQ(rank.replica.factors().size(), 3u);
        for (const FactorTraffic& layer : rank.replica.factors()) {
          expected -= layer.factor_bytes * ranks / (ranks - 1);
        }
        EXPECT_DOUBLE_EQ(expected, 0);
        expected = 4.0 * ranks * (1792 + 2048 + 1280) * sizeof(float);
        // Gradients of embeddings and biases are all-reduced. ZeRO stage 1 reduce-scatters them,
        // and gathers the values of all parameters.
        psi = parameters_of(*rank.model);
        const double rest = 256.0 * 96 + 1024 + 1024 + 256;
        expected += (stage == 0 ? 2 * rest : rest + psi) * sizeof(float);
      }
      rank.replica.world().barrier();
      const double before = rank.replica.bytes_sent();
      rank.step();
      rank.replica.finish_values();
      const double told = rank.replica.bytes_sent() - before;
      rank.replica.world().barrier();
      if (job.rank == 0) wire += bytes_on_the_wire;
      const double volume = expected * (ranks - 1) / ranks;
      EXPECT_NEAR(told, volume, 0.01 * volume);
    });
    const double all = expected * (ranks - 1);
    EXPECT_NEAR(static_cast<double>(wire), all, 0.01 * all + 3e4) << ranks << " ranks";
  }
}

// Deterministic mode gives the same bits in all stages, because stages 2 and 3 then accumulate
// whole gradients too.
TEST(AccumulatedGradients, DeterministicModeKeepsWholeGradients) {
  const testing::Deterministic deterministic;
  for (const int stage : {2, 3}) {
    TinyRun run;
    run.replica.storage = {.stage = stage};
    run_ranks(2, [&](const Job& job) {
      TinyRank rank(job, run);
      rank.step();
      Gpt model(run.model);
      EXPECT_GE(rank.replica.memory().storage.gradients, 4 * parameters_of(model));
    });
  }
}

// --- constant-size buffers (section 6.2) ---

// Returns rank 0's memory report of each of ten steps.
std::vector<MemoryReport> reports(int ranks, TinyRun run) {
  run.steps = 10;
  std::vector<MemoryReport> reports;
  run_ranks(ranks, [&](const Job& job) {
    TinyRank rank(job, run);
    for (uint64_t step = 0; step < run.steps; ++step) {
      rank.step();
      if (job.rank == 0) reports.push_back(rank.replica.memory());
    }
  });
  return reports;
}

TEST(GatheredBuckets, MoreStepsOrLayersGatherNoMoreBuckets) {
  for (const int stage : {2, 3}) {
    const auto bytes = [&](int64_t layers, bool overlap) {
      TinyRun run;
      run.model.layers = layers;
      run.batch = 2;
      run.replica.storage = {
          .stage = stage, .bucket_elements = 1 << 13, .first_bucket_elements = 1 << 13};
      run.replica.data_parallel.overlap = overlap;
      const std::vector<MemoryReport> steps = reports(2, run);
      if (!overlap) {
        EXPECT_EQ(steps.back().storage.gathered, steps.front().storage.gathered);
      }
      return steps.back().storage.gathered;
    };
    const int64_t one_at_a_time = bytes(3, false);
    EXPECT_GT(one_at_a_time, 0);
    // The largest bucket of 12 layers is smaller than that of 3 layers.
    EXPECT_LE(bytes(12, false), one_at_a_time) << stage;
    // Reductions are in flight during the backward pass, so the time at which a bucket is released
    // varies. Nevertheless only a few buckets are ever allocated.
    EXPECT_LE(bytes(12, true), 2 * one_at_a_time) << stage;
  }
}

// --- tensor ranks ---

// Returns the run with its model divided over the tensor ranks.
TinyRun cut(TinyRun run) {
  run.other_model = [config = run.model](const MeshPlace& place) {
    return std::make_unique<Gpt>(config, place);
  };
  return run;
}

class TensorCosts : public ::testing::TestWithParam<std::tuple<int, bool>> {
 private:
  const OverTcp over_tcp_;
};
INSTANTIATE_TEST_SUITE_P(Meshes, TensorCosts,
                         ::testing::Combine(::testing::Values(2, 4), ::testing::Bool()));

// Counts the bytes of a step with one micro-batch of s tokens and L blocks of width h, per rank, in
// units of (t - 1) / t s h values (Shoeybi et al. 2019; Korthikanti et al. 2022).
//
// An all-reduce counts 2. There is one after the embedding, four in each block (two forward, two
// backward), and one in backward before the head's normalization. With shared rows, a
// reduce-scatter and an all-gather (1 each) replace each all-reduce; the last all-gather is the one
// of the embedding's gradient. In addition, backward gathers two saved inputs in each block.
//
// For the loss, three numbers per token are all-reduced.
TEST_P(TensorCosts, FollowTheFormulas) {
  const auto [ranks, sp] = GetParam();
  constexpr int64_t kLayers = 3, kWidth = 256, kContext = 64, kSamples = 8;
  TinyRun run;
  run.mesh = {.tensor = ranks, .data = 1};
  run.model = {.layers = kLayers,
               .heads = 4,
               .width = kWidth,
               .context = kContext,
               .compute = {.sequence_parallel = sp}};
  run.batch = run.micro_batch = kSamples;
  std::vector<double> told(static_cast<size_t>(ranks));
  int64_t wire = 0;
  run_ranks(ranks, [&](const Job& job) {
    Trace trace;
    TinyRank rank(job, cut(run));
    rank.step();  // the first step creates the communicators
    rank.replica.record(trace);
    rank.replica.world().barrier();
    if (job.rank == 0) wire -= bytes_on_the_wire;
    rank.replica.world().barrier();
    const auto tensor = static_cast<size_t>(Axis::tensor);
    const double before = rank.replica.bytes_by_axis()[tensor];
    rank.step();
    told[static_cast<size_t>(job.rank)] = rank.replica.bytes_by_axis()[tensor] - before;
    int64_t traced = 0;
    for (const TraceEvent& event : trace.events()) {
      if (event.name.starts_with("tensor ")) traced += event.arguments.front().value;
    }
    EXPECT_EQ(static_cast<double>(traced), told[static_cast<size_t>(job.rank)]);
    rank.replica.world().barrier();
    if (job.rank == 0) wire += bytes_on_the_wire;
  });
  const double tokens = kContext * kSamples;
  const double units = sp ? 4 + 10 * kLayers : 4 + 8 * kLayers;
  // Bytes in f32, summed over all ranks.
  const double all = (ranks - 1) * 4 * tokens * (units * kWidth + 2 * 3);
  for (const double bytes : told) EXPECT_NEAR(bytes, all / ranks, 1e-9 * all);
  // Gradients of normalizations are summed over the ranks that share rows.
  const double norms = sp ? 2.0 * (ranks - 1) * 4 * (2 * (2 * kLayers + 1) * kWidth) : 0;
  EXPECT_NEAR(static_cast<double>(wire), all + norms, 0.01 * all + 1e5);
}

// No rank ever holds the logits of all words. If the loss is computed in chunks, no rank holds the
// logits of all tokens either.
TEST(Logits, NoRankHoldsWholeLogits) {
  constexpr int64_t kWords = 20000;
  const auto most_bytes = [](int ranks, int64_t chunk) {
    TinyRun run;
    run.mesh = {.tensor = ranks, .data = 1};
    run.model = {.layers = 1,
                 .heads = 4,
                 .width = 16,
                 .context = testing::kTinyContext,
                 .vocabulary = kWords,
                 .compute = {.loss_chunk = chunk}};
    run.batch = run.micro_batch = 8;
    int64_t most = 0;
    run_ranks(ranks, [&](const Job& job) {
      TinyRank rank(job, cut(run));
      rank.step();
      if (job.rank == 0) most = rank.replica.memory().activations;
    });
    return most;
  };
  const int64_t logits = 8 * testing::kTinyContext * kWords * 4;
  EXPECT_GT(most_bytes(1, 0), logits);
  EXPECT_LT(most_bytes(2, 0), logits / 2 + logits / 20);
  EXPECT_LT(most_bytes(4, 0), logits / 4 + logits / 20);
  EXPECT_LT(most_bytes(1, 8), logits / 16 + logits / 10);
  EXPECT_LT(most_bytes(2, 8), logits / 32 + logits / 10);
}

TEST(Activations, RecomputationKeepsFewerActivations) {
  const auto bytes = [](bool selective, bool full) {
    TinyRun run;
    run.model.layers = 4;
    run.model.compute.selective_recomputation = selective;
    run.replica.runner.checkpoint_units = full;
    const std::vector<MemoryReport> steps = reports(1, run);
    for (const MemoryReport& report : steps) {
      EXPECT_EQ(report.activations, steps.front().activations) << "no growth";
    }
    return steps.front().activations;
  };
  const int64_t none = bytes(false, false);
  const int64_t selective = bytes(true, false);
  const int64_t full = bytes(false, true);
  EXPECT_GT(none, selective);
  EXPECT_GT(selective, full);
  EXPECT_GT(full, 0);
}

}  // namespace
}  // namespace tutti::training
