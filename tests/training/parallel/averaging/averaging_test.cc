// Tests methods in which ranks have their own values: special cases that must equal other methods,
// update rules, means that must not change, and the bytes sent.
#include "training/parallel/averaging/averaging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/training/data/folder.h"
#include "tests/training/parallel/averaging/own_values.h"
#include "training/checkpoint/checkpoint.h"
#include "training/run/snapshot.h"

namespace tutti::training {
namespace {

using testing::at;
using testing::difference;
using testing::distance;
using testing::mean_of;
using testing::plain_outer;
using testing::Row;
using testing::run_of;
using testing::run_ranks;
using testing::save_in;
using testing::Still;
using testing::TinyRank;
using testing::TinyRun;
using testing::trained;
using testing::Values;
using testing::values_of;

TEST(Averaging, AveragingEachStepEqualsSummingGradients) {
  for (const int ranks : {1, 2, 3, 4}) {
    const Row summed = trained(ranks, run_of("allreduce"))[0].back();
    for (const TinyRun& run :
         {run_of("local:1"), run_of("gossip:complete"), plain_outer("diloco:1")}) {
      SCOPED_TRACE(text_of(run.replica.sync));
      const Values values = trained(ranks, run);
      EXPECT_LT(difference(values[0].back(), summed), 1e-6) << ranks << " ranks";
      EXPECT_GT(difference(values[0].back(), values[0].front()), 1e-3) << "it learns";
      for (const auto& of_rank : values) EXPECT_EQ(of_rank, values[0]);
    }
  }
}

TEST(Averaging, OneRankTrainsAlone) {
  const Values alone = trained(1, run_of("allreduce", 0.9));
  for (const char* way : {"local:1", "local:3", "post-local:2@3", "gossip:ring", "gossip:exp",
                          "gossip:random", "gossip:complete", "sgp:exp", "sgp:random"}) {
    EXPECT_EQ(trained(1, run_of(way, 0.9)), alone) << way;
  }
}

TEST(DiLoCo, WithoutAnOuterOptimizerAveragesValues) {
  const Values local = trained(3, run_of("local:4"));
  const Values plain = trained(3, plain_outer("diloco:4"));
  EXPECT_LT(difference(plain[0].back(), local[0].back()), 1e-6);
  EXPECT_GT(difference(trained(3, run_of("diloco:4"))[0].back(), local[0].back()), 1e-4);
}

TEST(DiLoCo, OneFragmentWithoutDelayEqualsPlainDiLoCo) {
  EXPECT_EQ(trained(2, run_of("diloco:4,1,0,0")), trained(2, run_of("diloco:4")));
}

// With fewer bits, the results are close to those in f32, and all ranks continue from equal values.
TEST(DiLoCo, SendsInFewerBits) {
  const Values plain = trained(3, run_of("diloco:4"));
  const std::vector<std::pair<WireFormat, double>> bounds = {
      {WireFormat::bf16, 0.005}, {WireFormat::mx8, 0.05}, {WireFormat::mx4, 0.2}};
  for (const auto& [wire, bound] : bounds) {
    TinyRun run = run_of("diloco:4");
    run.replica.sync.wire = wire;
    const Values values = trained(3, run);
    for (const auto& of_rank : values) EXPECT_EQ(of_rank.back(), values[0].back());
    const double apart = difference(values[0].back(), plain[0].back());
    EXPECT_GT(apart, 0) << name(wire);
    EXPECT_LT(apart, bound) << name(wire);
  }
}

TEST(PostLocalSgd, AveragesGradientsUntilTheGivenStep) {
  const Values summed = trained(2, run_of("allreduce", 0.9));
  const Values values = trained(2, run_of("post-local:2@4", 0.9));
  for (size_t step = 1; step <= 8; ++step) {
    const bool same = values[0][step - 1] == values[1][step - 1];
    EXPECT_EQ(same, step <= 4 || step % 2 == 0) << "after step " << step;
  }
  EXPECT_LT(difference(values[0][3], summed[0][3]), 1e-6);
}

TEST(Gossip, KeepsTheMeanOfAllValuesInEachStep) {
  for (const char* way :
       {"gossip:ring", "gossip:exp", "gossip:random", "gossip:complete", "sgp:exp"}) {
    for (const int ranks : {2, 3, 4, 5}) {
      SCOPED_TRACE(cat(way, " of ", ranks));
      TinyRun run = run_of(way);
      run.steps = 48;
      const Values values = Still(ranks, run).values(true);
      const std::vector<double> mean = mean_of(values, 1);
      const double apart = distance(values[0][1], mean);
      EXPECT_GT(apart, 0.1);
      for (size_t step = 2; step < values[0].size(); ++step) {
        const std::vector<double> now = mean_of(values, step);
        double moved = 0;
        for (size_t i = 0; i < now.size(); ++i) moved = std::max(moved, std::abs(now[i] - mean[i]));
        ASSERT_LT(moved, 5e-6) << "in step " << step - 1;
      }
      for (const auto& of_rank : values) EXPECT_LT(distance(of_rank.back(), mean), 1e-3 * apart);
    }
  }
}

TEST(Gossip, ExponentialPeersOfFourRanksAgreeInTwoSteps) {
  TinyRun run = run_of("gossip:exp");
  run.steps = 2;
  const Values values = Still(4, run).values(true);
  const std::vector<double> mean = mean_of(values, 1);
  for (const auto& of_rank : values) EXPECT_LT(distance(of_rank.back(), mean), 1e-6);
}

// Although some ranks receive from several ranks and others from none, all converge to the mean of
// all values.
TEST(PushSum, RandomTargetsDoNotBiasTheMean) {
  for (const int ranks : {2, 3, 5}) {
    TinyRun run = run_of("sgp:random");
    run.steps = 64;
    const Values values = Still(ranks, run).values(true);
    const std::vector<double> mean = mean_of(values, 1);
    for (const auto& of_rank : values) {
      EXPECT_LT(distance(of_rank.back(), mean), 1e-4) << ranks << " ranks";
    }
  }
}

// The reference computes the rules of diloco.h in double, element by element.
TEST(DiLoCo, FragmentsFollowTheirRule) {
  constexpr int kRanks = 3;
  constexpr int64_t kEvery = 6;
  constexpr int64_t kFragments = 2;
  constexpr int64_t kDelay = 1;
  constexpr double kShare = 0.25;
  constexpr double kRate = 0.7;
  constexpr double kMomentum = 0.9;
  TinyRun run = run_of("diloco:6,2,1,0.25");
  run.steps = 14;
  const Values values = Still(kRanks, run).values(false);
  const auto size = static_cast<int64_t>(values[0][0].size());
  for (int64_t i = 0; i < size; i += 101) {
    const int64_t fragment = i >= size / kFragments ? 1 : 0;
    double outer = values[0][0][at(i)];
    double momentum = 0;
    double delta = 0;
    std::vector<double> own(kRanks);
    for (int rank = 0; rank < kRanks; ++rank) own[at(rank)] = values[at(rank)][1][at(i)];
    for (int64_t step = 1; step <= 14; ++step) {
      const int64_t sent_at = (fragment + 1) * kEvery / kFragments;
      if (step % kEvery == sent_at % kEvery) {
        delta = outer;
        for (const double value : own) delta -= value / kRanks;
      }
      if (step > kDelay && (step - kDelay) % kEvery == sent_at % kEvery) {
        momentum = kMomentum * momentum + delta;
        outer -= kRate * (delta + kMomentum * momentum);
        for (double& value : own) value = kShare * value + (1 - kShare) * outer;
      }
      for (int rank = 0; rank < kRanks; ++rank) {
        ASSERT_NEAR(values[at(rank)][at(step + 1)][at(i)], own[at(rank)], 1e-5)
            << "element " << i << ", step " << step << ", rank " << rank;
      }
    }
  }
}

// The reference computes the rules of easgd.h in double, element by element.
TEST(Easgd, FollowsItsRule) {
  for (const int ranks : {1, 2, 3, 5}) {
    for (const char* way : {"easgd:2", "easgd:1,0.3"}) {
      SCOPED_TRACE(cat(way, " of ", ranks));
      const TinyRun run = run_of(way);
      const Values values = Still(ranks, run).values(false);
      const double alpha = run.replica.sync.elasticity.value_or(0.9 / ranks);
      for (size_t i = 0; i < values[0][0].size(); i += 101) {
        double centre = values[0][0][i];
        std::vector<double> own;
        for (const auto& of_rank : values) own.push_back(of_rank[1][i]);
        for (int64_t step = 1; step <= 8; ++step) {
          if (step % run.replica.sync.every == 0) {
            double sum = 0;
            for (double& value : own) {
              sum += value - centre;
              value -= alpha * (value - centre);
            }
            centre += alpha * sum;
          }
          for (int rank = 0; rank < ranks; ++rank) {
            ASSERT_NEAR(values[at(rank)][at(step + 1)][i], own[at(rank)], 1e-5)
                << "element " << i << ", step " << step << ", rank " << rank;
          }
        }
      }
    }
  }
}

TEST(Averaging, SendsOnlyValues) {
  const auto sent = [](const std::string& way, int ranks, WireFormat wire = WireFormat::plain) {
    std::vector<double> bytes;
    run_ranks(ranks, [&](const Job& job) {
      TinyRun run = run_of(way);
      run.replica.sync.wire = wire;
      TinyRank rank(job, run);
      double before = rank.replica.bytes_sent();
      for (int step = 1; step <= 8; ++step) {
        rank.step();
        const double after = rank.replica.bytes_sent();
        const auto all = static_cast<double>(values_of(rank.replica).size() * sizeof(float));
        if (job.rank == 0) bytes.push_back((after - before) / all);
        before = after;
      }
    });
    return bytes;
  };
  using Shares = std::vector<double>;
  EXPECT_EQ(sent("diloco:4", 2), (Shares{0, 0, 0, 1, 0, 0, 0, 1}));
  EXPECT_NEAR(sent("diloco:1", 2, WireFormat::mx8)[0], 33.0 / 128, 1e-3);
  EXPECT_EQ(sent("post-local:4@1", 2), (Shares{1, 0, 0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(sent("gossip:ring", 4), Shares(8, 2));
  EXPECT_EQ(sent("gossip:ring", 2), Shares(8, 1));
  EXPECT_EQ(sent("gossip:exp", 4), Shares(8, 1));
  EXPECT_EQ(sent("easgd:4", 2), (Shares{0, 0, 0, 1, 0, 0, 0, 1}));
  EXPECT_THAT(
      sent("diloco:4,2,1", 2),
      ::testing::Pointwise(::testing::DoubleNear(0.01), Shares{0, 0.5, 0, 0.5, 0, 0.5, 0, 0.5}));
}

constexpr int kRanks = 3;
constexpr int kSavedAt = 6;
constexpr double kUntrained = 5.4;  // the loss of an untrained model of bytes is about log(256)

class AveragingState : public FolderTest {
 protected:
  // Returns a directory name for the run.
  std::string directory_of(const TinyRun& run) const {
    return path(cat(std::string(name(run.replica.storage.dtype)), text_of(run.replica.sync)));
  }
  void save(const TinyRun& run) const {
    run_ranks(kRanks, [&](const Job& job) {
      TinyRank rank(job, run);
      for (int step = 0; step < kSavedAt; ++step) rank.step();
      save_in(directory_of(run), rank, job);
    });
  }
};

// The run is saved in step 6, when a fragment of DiLoCo is in flight.
TEST_F(AveragingState, ResumesBitForBit) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const char* way :
         {"local:4", "post-local:2@7", "diloco:4", "diloco:4,2,1,0.5", "gossip:ring", "gossip:exp",
          "gossip:random", "sgp:random", "easgd:4", "fedavg:4,0.5", "fedprox:4,0.1", "fedadam:4"}) {
      SCOPED_TRACE(way);
      TinyRun run = run_of(way, 0.5);
      run.replica.storage.dtype = dtype;
      const Values expected = trained(kRanks, run);
      save(run);
      run_ranks(kRanks, [&](const Job& job) {
        TinyRank rank(job, run);
        load_snapshot(rank.replica, *rank.model, Checkpoint::open(directory_of(run)));
        rank.skip(kSavedAt);
        EXPECT_EQ(values_of(rank.replica), expected[at(job.rank)][kSavedAt - 1]);
        for (uint64_t step = kSavedAt; step < run.steps; ++step) {
          rank.step();
          EXPECT_EQ(values_of(rank.replica), expected[at(job.rank)][step]) << "step " << step + 1;
        }
      });
    }
  }
}

// If fragments have other sizes, or are sent at other updates, no fragment is in flight when the
// run resumes.
TEST_F(AveragingState, ContinuesWithAnotherScheduleOfFragments) {
  const TinyRun saved = run_of("diloco:6,3,1");
  save(saved);
  for (const char* next : {"diloco:6,2,1", "diloco:8,4,1", "diloco:6"}) {
    SCOPED_TRACE(next);
    run_ranks(kRanks, [&](const Job& job) {
      TinyRank rank(job, run_of(next));
      load_snapshot(rank.replica, *rank.model, Checkpoint::open(directory_of(saved)));
      rank.skip(kSavedAt);
      EXPECT_LT(rank.step().loss, kUntrained);
      EXPECT_LT(rank.step().loss, kUntrained);
    });
  }
}

TEST_F(AveragingState, OneRankContinuesBitForBit) {
  for (const char* way : {"local:4", "diloco:4,2,1,0.5", "gossip:ring", "sgp:exp", "sgp:random",
                          "easgd:4", "fedavg:4", "fedprox:4,0.1", "fedadam:4"}) {
    SCOPED_TRACE(way);
    const TinyRun run = run_of(way, 0.5);
    const Values expected = trained(1, run);
    run_ranks(1, [&](const Job& job) {
      TinyRank rank(job, run);
      for (int step = 0; step < kSavedAt; ++step) rank.step();
      save_in(directory_of(run), rank, job);
    });
    run_ranks(1, [&](const Job& job) {
      TinyRank rank(job, run);
      load_snapshot(rank.replica, *rank.model, Checkpoint::open(directory_of(run)));
      rank.skip(kSavedAt);
      EXPECT_EQ(values_of(rank.replica), expected[0][kSavedAt - 1]);
      rank.step();
      EXPECT_EQ(values_of(rank.replica), expected[0][kSavedAt]);
    });
  }
}

// If a run resumes with another method, all ranks begin with the mean of the saved values.
TEST_F(AveragingState, AnotherMethodBeginsWithTheMean) {
  const std::vector<std::string> ways = {"allreduce",      "local:4",       "diloco:4,2,1,0.5",
                                         "post-local:4@7", "gossip:ring",   "sgp:random",
                                         "easgd:4",        "fedprox:4,0.1", "fedadam:4"};
  for (const std::string& way : ways) {
    const TinyRun saved = run_of(way);
    save(saved);
    Row mean;
    for (const std::string& next : ways) {
      if (way == next) continue;
      SCOPED_TRACE(cat(way, " then ", next));
      Values values(kRanks);
      run_ranks(kRanks, [&](const Job& job) {
        TinyRank rank(job, run_of(next));
        load_snapshot(rank.replica, *rank.model, Checkpoint::open(directory_of(saved)));
        rank.skip(kSavedAt);
        values[at(job.rank)].push_back(values_of(rank.replica));
        EXPECT_LT(rank.step().loss, kUntrained);
        EXPECT_LT(rank.step().loss, kUntrained);
      });
      for (const auto& of_rank : values) EXPECT_EQ(of_rank[0], values[0][0]);
      if (mean.empty()) mean = values[0][0];
      EXPECT_LT(difference(values[0][0], mean), 1e-6);
    }
  }
}

TEST_F(AveragingState, ContinuesOnAnotherNumberOfRanks) {
  for (const char* way : {"local:4", "diloco:4,2,1,0.5", "gossip:ring", "sgp:random", "easgd:4",
                          "fedavg:4", "fedadam:4"}) {
    const TinyRun run = run_of(way);
    save(run);
    for (const int ranks : {1, 2, 4}) {
      SCOPED_TRACE(cat(way, " on ", ranks));
      run_ranks(ranks, [&](const Job& job) {
        TinyRank rank(job, run);
        load_snapshot(rank.replica, *rank.model, Checkpoint::open(directory_of(run)));
        rank.skip(kSavedAt);
        EXPECT_LT(rank.step().loss, kUntrained);
        EXPECT_LT(rank.step().loss, kUntrained);
      });
    }
  }
}

}  // namespace
}  // namespace tutti::training
