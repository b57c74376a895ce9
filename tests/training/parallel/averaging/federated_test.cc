// Tests federated averaging: special cases that must equal other methods, the rules of FedProx and
// FedAdam, the selection and weights of clients, and secure sums.
#include "training/parallel/averaging/federated.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tests/training/parallel/averaging/own_values.h"
#include "training/core/placement.h"
#include "training/parallel/averaging/peers.h"
#include "training/parallel/averaging/secure_sum.h"

namespace tutti::training {
namespace {

using testing::at;
using testing::difference;
using ::testing::HasSubstr;
using testing::Row;
using testing::run_of;
using testing::run_ranks;
using testing::Still;
using testing::TinyRank;
using testing::TinyRun;
using testing::trained;
using testing::Values;
using testing::values_of;
using tutti::testing::run_ranks_catching;

constexpr int kWorlds[] = {1, 2, 3, 5};

// Returns the weight of each rank: its fraction of the samples that the selected ranks have in a
// step. All samples have equally many targets.
std::vector<double> weights_of(const TinyRun& run, int ranks, const std::vector<bool>& drawn) {
  std::vector<double> weights;
  double all = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t samples = even_share(static_cast<int64_t>(run.batch), rank, ranks).count;
    weights.push_back(drawn[at(rank)] ? static_cast<double>(samples) : 0);
    all += weights.back();
  }
  for (double& weight : weights) weight /= all;
  return weights;
}

TEST(Federated, AveragingEachStepEqualsSummingGradients) {
  for (const int ranks : kWorlds) {
    const Row summed = trained(ranks, run_of("allreduce"))[0].back();
    for (const char* way : {"fedavg:1", "fedprox:1,0.5"}) {
      const Values values = trained(ranks, run_of(way));
      EXPECT_LT(difference(values[0].back(), summed), 1e-6) << way << " of " << ranks;
      for (const auto& of_rank : values) EXPECT_EQ(of_rank, values[0]);
    }
  }
}

TEST(Federated, OneClientTrainsAlone) {
  const Values alone = trained(1, run_of("allreduce"));
  for (const char* way : {"fedavg:1", "fedavg:3", "fedavg:3,0.5", "fedprox:3,0"}) {
    EXPECT_EQ(trained(1, run_of(way)), alone) << way;
  }
}

TEST(Federated, RoundsBeginWithoutTheOptimizersState) {
  EXPECT_EQ(trained(2, run_of("fedavg:1", 0.9)), trained(2, run_of("fedavg:1")));
  EXPECT_NE(trained(2, run_of("fedavg:4", 0.9)), trained(2, run_of("fedavg:4")));
}

TEST(Federated, ClientsAgreeAtTheEndsOfRounds) {
  for (const int ranks : kWorlds) {
    const Values values = trained(ranks, run_of("fedavg:3,0.5"));
    for (size_t step = 1; step <= 8 && ranks > 1; ++step) {
      EXPECT_EQ(values[0][step - 1] == values[1][step - 1], step % 3 == 0) << "after step " << step;
    }
  }
}

TEST(FedProx, WithoutItsTermIsFedAvg) {
  for (const int ranks : kWorlds) {
    EXPECT_EQ(trained(ranks, run_of("fedprox:4,0", 0.9)), trained(ranks, run_of("fedavg:4", 0.9)));
  }
}

// Except for the term of FedProx, the second gradient of a round is the same in both runs.
TEST(FedProx, AddsItsTermToGradients) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    TinyRun run = run_of("fedavg:4");
    run.replica.storage.dtype = dtype;
    const Row average = trained(1, run)[0][1];
    set_way(run.replica.sync, "fedprox:4,0.5");
    const Values values = trained(1, run);
    run.learning_rate = 0;
    const Row first = trained(1, run)[0][0];
    const double tolerance = dtype == DType::f32 ? 5e-7 : 1e-4;
    for (size_t i = 0; i < first.size(); ++i) {
      const double moved = values[0][0][i] - first[i];
      ASSERT_NEAR(values[0][1][i], average[i] - 0.1 * 0.5 * moved, tolerance) << "element " << i;
    }
  }
}

// The reference computes the rules of federated.h in double, element by element.
TEST(FedAdam, FollowsItsRule) {
  for (const int ranks : kWorlds) {
    TinyRun run = run_of("fedadam:2");
    run.replica.sync.outer_rate = 0.05;
    const Values values = Still(ranks, run).values(false);
    const std::vector<double> weights = weights_of(run, ranks, std::vector<bool>(at(ranks), true));
    for (size_t i = 0; i < values[0][0].size(); i += 101) {
      double global = values[0][0][i];
      double m = 0;
      double v = 1e-6;
      double d = -global;
      for (int rank = 0; rank < ranks; ++rank) d += weights[at(rank)] * values[at(rank)][1][i];
      for (int64_t step = 2; step <= 8; step += 2) {
        m = 0.9 * m + 0.1 * d;
        v = 0.99 * v + 0.01 * d * d;
        global += 0.05 * m / (std::sqrt(v) + 1e-3);
        d = 0;  // no client is selected, so that nothing is learnt
        for (const auto& of_rank : values) {
          ASSERT_NEAR(of_rank[at(step + 1)][i], global, 1e-5) << "element " << i << ", " << step;
        }
      }
    }
  }
}

// With 5 ranks, these have 2, 2, 3, 2 and 3 of the 12 samples.
TEST(Federated, OnlyDrawnClientsCountByTheirTargets) {
  for (const int ranks : {2, 3, 5}) {
    for (const char* way : {"fedavg:1", "fedavg:1,0.4", "fedavg:1,0", "fedprox:1,0.5,0.4"}) {
      SCOPED_TRACE(cat(way, " of ", ranks));
      const TinyRun run = run_of(way);
      const Values values = Still(ranks, run).values(false);
      const auto clients =
          std::max<int64_t>(1, std::lround(run.replica.sync.fraction * static_cast<double>(ranks)));
      const std::vector<bool> drawn =
          random_members(ranks, static_cast<int>(clients), run.replica.seed, 1);
      EXPECT_EQ(std::ranges::count(drawn, true), clients);
      const std::vector<double> weights = weights_of(run, ranks, drawn);
      for (size_t i = 0; i < values[0][0].size(); ++i) {
        double mean = 0;
        for (int rank = 0; rank < ranks; ++rank) mean += weights[at(rank)] * values[at(rank)][1][i];
        ASSERT_NEAR(values[0][2][i], mean, 1e-6) << "element " << i;
      }
      for (const auto& of_rank : values) EXPECT_EQ(of_rank[2], values[0][2]);
    }
  }
}

TEST(Federated, EachRoundSelectsClientsAgain) {
  std::vector<int> times(5);
  for (int64_t round = 1; round <= 200; ++round) {
    const std::vector<bool> drawn = random_members(5, 2, 1, round);
    EXPECT_EQ(drawn, random_members(5, 2, 1, round));
    for (size_t client = 0; client < drawn.size(); ++client) times[client] += drawn[client] ? 1 : 0;
  }
  for (const int count : times) EXPECT_NEAR(count, 80, 25);
}

TEST(Federated, RefusesIncompatibleOptions) {
  const auto refusal = [](const char* way, const auto& change) {
    TinyRun run = run_of(way);
    change(run.replica);
    std::string all;
    for (const auto& error :
         run_ranks_catching(1, [&](const Job& job) { TinyRank rank(job, run); })) {
      all += error ? error->what() : "no error";
    }
    return all;
  };
  const auto mask = [](ReplicaOptions& options) { options.sync.secure_sums = true; };
  EXPECT_THAT(refusal("local:4", mask), HasSubstr("not available with local:4"));
  EXPECT_THAT(refusal("easgd:4", mask), HasSubstr("--sync fedavg:K"));
  const auto scale = [](ReplicaOptions& options) {
    options.storage.dtype = DType::f16;
    options.loss_scaling.emplace();
  };
  EXPECT_THAT(refusal("fedprox:4,0.1", scale), HasSubstr("does not support loss scaling"));
  EXPECT_EQ(refusal("fedavg:4", scale), "no error");
  const auto shard = [](ReplicaOptions& options) { options.storage.stage = 1; };
  EXPECT_THAT(refusal("fedavg:4", shard), HasSubstr("does not support ZeRO stage 1"));
}

TEST(Federated, ValidatesTheGlobalValues) {
  run_ranks(3, [](const Job& job) {
    TinyRun run = run_of("fedavg:4");
    run.validation_samples = 8;
    TinyRank rank(job, run);
    for (int step = 0; step < 4; ++step) rank.step();
    const double at_the_end = rank.evaluate().loss;
    rank.step();
    EXPECT_EQ(rank.evaluate().loss, at_the_end);
    for (int step = 5; step < 8; ++step) rank.step();
    EXPECT_LT(rank.evaluate().loss, at_the_end);
  });
}

// The reference is the same sum in fixed point, which the test computes without masks.
TEST(SecureSums, MaskedRoundsEqualPlainOnesBitForBit) {
  for (const int ranks : kWorlds) {
    for (const char* way : {"fedavg:1", "fedavg:1,0.4"}) {
      SCOPED_TRACE(cat(way, " of ", ranks));
      TinyRun run = run_of(way);
      run.replica.sync.secure_sums = true;
      const Values values = Still(ranks, run).values(false);
      const auto clients = std::max<int64_t>(1, std::lround(run.replica.sync.fraction * ranks));
      const std::vector<double> weights = weights_of(
          run, ranks, random_members(ranks, static_cast<int>(clients), run.replica.seed, 1));
      Row row(values[0][0].size());
      std::vector<uint64_t> words(row.size());
      std::vector<uint64_t> sum(row.size());
      for (int rank = 0; rank < ranks; ++rank) {
        const auto weight = static_cast<float>(weights[at(rank)]);
        for (size_t i = 0; i < row.size(); ++i) row[i] = weight * values[at(rank)][1][i];
        to_fixed_point(row, ranks, words);
        for (size_t i = 0; i < row.size(); ++i) sum[i] += words[i];
      }
      from_fixed_point(sum, row);
      for (const auto& of_rank : values) EXPECT_EQ(of_rank[2], row);
    }
  }
}

TEST(SecureSums, TrainLikePlainSums) {
  for (const char* way : {"fedavg:4", "fedprox:4,0.1,0.5", "fedadam:4"}) {
    TinyRun run = run_of(way, 0.9);
    const Values plain = trained(3, run);
    run.replica.sync.secure_sums = true;
    EXPECT_LT(difference(trained(3, run)[0].back(), plain[0].back()), 1e-5) << way;
  }
}

TEST(SecureSums, MasksHideEachClientAndCancel) {
  constexpr int kClients = 5;
  const std::vector<bool> takes_part = {true, false, true, true, true};
  std::vector<uint64_t> sum(100);
  for (int client = 0; client < kClients; ++client) {
    if (!takes_part[at(client)]) continue;
    std::vector<uint64_t> words(sum.size());
    add_masks(words, client, takes_part, 7, 3, 0);
    int set = 0;
    for (size_t i = 0; i < sum.size(); ++i) {
      set += std::popcount(words[i]);
      sum[i] += words[i];
    }
    EXPECT_NEAR(set, 3200, 200);
  }
  EXPECT_EQ(sum, std::vector<uint64_t>(100));
}

TEST(SecureSums, RefuseUnsuitableRuns) {
  std::vector<uint64_t> words(1);
  Row row(1);
  for (const float value : {-1.5f, 0x1p-36f, 1000.25f, 0.0f}) {
    to_fixed_point({&value, 1}, 4, words);
    from_fixed_point(words, row);
    EXPECT_EQ(row[0], value);
  }
  for (const float value : {1e9f, -1e9f, std::nanf("")}) {
    EXPECT_THROW(to_fixed_point({&value, 1}, 4, words), Error) << value;
  }
}

}  // namespace
}  // namespace tutti::training
