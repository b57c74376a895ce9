// Tests every algorithm of the catalogue, and those in MSCCL files if present, inside kernels
// against a serial reference. There are 2 to 8 GPUs emulated by host threads. Each algorithm runs
// in 20 orders of threads, by both protocols, in 1 to 4 blocks.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "collectives/interchange/msccl_import.h"
#include "tests/collectives/gpu/emulated_gpus.h"
#include "tests/collectives/gpu/right_call.h"
#include "tests/collectives/random_calls.h"
#include "tests/support/test_data.h"

namespace tutti {
namespace {

using gpu::MailboxShape;
using gpu::Protocol;
using testing::Case;
using testing::EmulatedGpus;
using testing::GpuSetting;

constexpr uint32_t kMostBlocks = 4;
constexpr uint64_t kLargest = 6'000;
constexpr uint64_t kSeeds = 20;
constexpr MailboxShape kShape{
    .slots = 4, .blocks = kMostBlocks, .simple_bytes = 2 << 10, .lines_data = 512};

// Draws a call that the algorithm supports. Uneven blocks that only their sender and receiver know
// require a direct algorithm.
Case draw_call_of(const Algorithm& algorithm, testing::Random& random, int ranks) {
  for (;;) {
    Case c = testing::draw_case(random, ranks, kLargest);
    const Collective collective = c.layout.collective;
    if (collective != algorithm.collective) continue;
    const bool is_private = !c.layout.uneven.empty() && collective != Collective::all_gather &&
                            collective != Collective::reduce_scatter;
    if (is_private && !algorithm.direct) continue;
    if (reduces(collective) && c.op == ReduceOp::user) continue;
    if (!algorithm.supports({.ranks = ranks, .root = c.layout.root}).empty()) continue;
    c.algorithm = algorithm.name;
    return c;
  }
}

// Returns true if the algorithm supports this number of ranks, with root 0 if it has a root.
bool runs_on(const Algorithm& algorithm, int ranks) {
  return algorithm.supports({.ranks = ranks}).empty();
}

void expect_right(const Algorithm& algorithm, int ranks, EmulatedGpus& gpus) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    testing::Random random(seed * 100 + static_cast<uint64_t>(ranks));
    const Case c = draw_call_of(algorithm, random, ranks);
    const GpuSetting setting{.protocol = seed % 2 == 0 ? Protocol::simple : Protocol::lines,
                             .blocks = static_cast<uint32_t>(1 + seed / 2 % kMostBlocks),
                             .threads = static_cast<unsigned>(1 + random.below(5)),
                             .lends = seed % 4 == 0,
                             .joins = seed % 8 == 0,
                             .by_switch = seed % 16 == 0,
                             .seed = seed};
    ASSERT_NO_FATAL_FAILURE(testing::assert_right(gpus, algorithm, c, setting));
  }
}

class EveryAlgorithm : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(On, EveryAlgorithm, ::testing::Range(2, 9),
                         [](const auto& info) { return std::to_string(info.param); });

TEST_P(EveryAlgorithm, GivesTheRightResult) {
  const int ranks = GetParam();
  EmulatedGpus gpus(ranks, kShape);
  int tried = 0;
  for (const Collective collective : kCollectivesWithAlgorithms) {
    for (const Algorithm* const algorithm : algorithms_for(collective)) {
      if (!runs_on(*algorithm, ranks)) continue;
      ++tried;
      expect_right(*algorithm, ranks, gpus);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(tried, 30);
}

TEST(AlgorithmsOfMscclFiles, GiveTheRightResult) {
  const std::filesystem::path folder = testing::test_data("msccl");
  if (folder.empty()) GTEST_SKIP() << testing::kNoTestData;
  constexpr int kMostRanks = 16;
  int tried = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".xml") continue;
    SCOPED_TRACE(entry.path());
    const Algorithm& algorithm = import_algorithm(entry.path());
    int ranks = 2;
    while (ranks <= kMostRanks && !runs_on(algorithm, ranks)) ++ranks;
    if (ranks > kMostRanks) continue;
    ++tried;
    EmulatedGpus gpus(ranks, kShape);
    expect_right(algorithm, ranks, gpus);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(tried, 0);
}

}  // namespace
}  // namespace tutti
