// Runs methods in which every rank has its own values (averaging), and returns what the tests
// check.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mix_bits.h"
#include "tests/training/support/tiny_run.h"
#include "training/run/snapshot.h"

namespace tutti::training::testing {

using tutti::testing::run_ranks;

using Row = std::vector<float>;
// Indexed by rank, then by step: all values of the rank after the step.
using Values = std::vector<std::vector<Row>>;

inline size_t at(int64_t index) { return static_cast<size_t>(index); }

inline TinyRun run_of(const std::string& way, double momentum = 0) {
  TinyRun run;
  set_way(run.replica.sync, way);
  if (run.replica.sync.kind == SyncKind::fedadam) run.replica.sync.outer_rate = 0.01;
  run.optimizer = {{"name", "sgd"}, {"momentum", momentum}};
  run.learning_rate = 0.1;
  run.steps = 8;
  run.batch = 12;
  return run;
}

inline TinyRun plain_outer(const std::string& way) {
  TinyRun run = run_of(way);
  run.replica.sync.outer_rate = 1;
  run.replica.sync.outer_momentum = 0;
  return run;
}

inline Row values_of(const Replica& replica) {
  Row all;
  for (const OwnedPiece& piece : replica.owned()) {
    const auto values = piece.updated().values<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

inline Values trained(int ranks, const TinyRun& run) {
  Values values(at(ranks));
  run_ranks(ranks, [&](const Job& job) {
    TinyRank rank(job, run);
    for (uint64_t step = 0; step < run.steps; ++step) {
      rank.step();
      values[at(job.rank)].push_back(values_of(rank.replica));
    }
  });
  return values;
}

inline double difference(const Row& a, const Row& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max<double>(largest, std::abs(a[i] - b[i]));
  return largest;
}

// Runs steps with a learning rate of 0, so that only the exchanges change the values.
class Still {
 public:
  Still(int ranks, TinyRun run) : ranks_(ranks), run_(std::move(run)) { run_.learning_rate = 0; }

  // Adds different random numbers to each rank's initial values, then runs all steps. Returns, for
  // each rank, the initial values, the values with the random numbers, and the values after each
  // step. With `publish`, the synchronizer uses the values with the random numbers as its starting
  // point.
  Values values(bool publish) const {
    Values all(at(ranks_));
    run_ranks(ranks_, [&](const Job& job) {
      TinyRank rank(job, run_);
      all[at(job.rank)].push_back(values_of(rank.replica));
      uint64_t index = 0;
      for (const OwnedPiece& piece : rank.replica.owned()) {
        for (float& value : piece.updated().values<float>()) {
          const auto random = static_cast<double>(mix_bits(++index * 64 + at(job.rank)) >> 11);
          value += static_cast<float>(random * 0x1p-53 * (job.rank + 1));
        }
      }
      if (publish) rank.replica.publish();
      all[at(job.rank)].push_back(values_of(rank.replica));
      for (uint64_t step = 0; step < run_.steps; ++step) {
        rank.step();
        all[at(job.rank)].push_back(values_of(rank.replica));
      }
    });
    return all;
  }

 private:
  int ranks_;
  TinyRun run_;
};

inline std::vector<double> mean_of(const Values& values, size_t step) {
  std::vector<double> mean(values[0][step].size());
  for (const auto& of_rank : values) {
    for (size_t i = 0; i < mean.size(); ++i) {
      mean[i] += of_rank[step][i] / static_cast<double>(values.size());
    }
  }
  return mean;
}

inline double distance(const Row& row, const std::vector<double>& mean) {
  double largest = 0;
  for (size_t i = 0; i < row.size(); ++i) largest = std::max(largest, std::abs(row[i] - mean[i]));
  return largest;
}

inline void save_in(const std::string& directory, TinyRank& rank, const Job& job) {
  std::optional<RunDirectory> run;
  if (job.rank == 0) run.emplace(directory, RunStart{});
  save_snapshot(rank.replica, *rank.model,
                {.directory = run ? &*run : nullptr, .step = rank.done, .keep = 1});
}

}  // namespace tutti::training::testing
