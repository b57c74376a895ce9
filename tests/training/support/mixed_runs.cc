#include "tests/training/support/mixed_runs.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <optional>

#include "training/checkpoint/checkpoint.h"
#include "training/run/parameter_values.h"
#include "training/run/snapshot.h"

namespace tutti::training::testing {
namespace {

using tutti::testing::run_ranks;

constexpr int64_t kSavedAt = 2;

std::vector<double> next_losses(TinyRank& rank) {
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) losses.push_back(rank.step().loss);
  return losses;
}

}  // namespace

TinyRun mixed_run(const MakeMixed& make, const ResNetConfig& images, int tensor, int data,
                  int zero) {
  TinyRun run;
  run.mesh = {.tensor = tensor, .data = data};
  run.resnet = images;
  run.other_model = make;
  run.replica.storage.stage = zero;
  run.replica.storage.bucket_elements = 60;
  run.replica.storage.first_bucket_elements = 30;
  run.replica.clip = 0.5;
  run.batch = 10;
  run.micro_batch = 5;
  run.last_batch = 4;
  run.steps = 6;
  run.validation_samples = 7;
  return run;
}

std::pair<double, double> sent_by(const MakeMixed& make, const ResNetConfig& images, int ranks,
                                  int64_t samples) {
  std::pair<double, double> sent;
  run_ranks(ranks, [&](const Job& job) {
    TinyRun run;
    run.mesh = {.tensor = ranks, .data = 1};
    run.resnet = images;
    run.other_model = make;
    run.batch = run.micro_batch = static_cast<uint64_t>(samples);
    TinyRank rank(job, run);
    rank.step();
    const auto bytes = rank.replica.bytes_by_axis();
    if (job.rank != 0) return;
    sent = {bytes[static_cast<size_t>(Axis::tensor)], bytes[static_cast<size_t>(Axis::data)]};
  });
  return sent;
}

std::vector<double> losses_behind_save(const TinyRun& run, const std::string& directory) {
  std::vector<double> losses;
  run_ranks(2, [&](const Job& job) {
    TinyRank rank(job, run);
    while (rank.done < kSavedAt) rank.step();
    std::optional<RunDirectory> saved;
    if (job.rank == 0) saved.emplace(directory, RunStart{});
    save_snapshot(rank.replica, *rank.model,
                  {.directory = saved ? &*saved : nullptr, .step = kSavedAt, .keep = 1});
    const std::vector<double> own = next_losses(rank);
    if (job.rank == 0) losses = own;
  });
  return losses;
}

void expect_goes_on(const TinyRun& run, int ranks, const std::string& directory,
                    const std::vector<double>& losses) {
  run_ranks(ranks, [&](const Job& job) {
    TinyRank rank(job, run);
    load_snapshot(rank.replica, *rank.model, Checkpoint::open(directory));
    rank.skip(kSavedAt);
    EXPECT_LT(relative_difference(next_losses(rank), losses), 1e-5);
  });
}

}  // namespace tutti::training::testing
