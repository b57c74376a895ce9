// Tests the programs of the catalogue in kernels on GPUs that are emulated by host threads, against
// a serial reference. Calls are random: every collective, algorithm, type and operator, with odd
// counts and addresses, in and out of place, by both protocols, in several blocks.
#include "tests/collectives/random_calls.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/collectives/gpu/emulated_gpus.h"
#include "tests/collectives/gpu/right_call.h"

namespace tutti {
namespace {

using gpu::MailboxShape;
using gpu::Protocol;
using testing::Case;
using testing::EmulatedGpus;
using testing::GpuSetting;

constexpr uint32_t kMostBlocks = 4;

Case draw_collective(testing::Random& random, int ranks) {
  for (;;) {
    Case c = testing::draw_case(random, ranks, 20'000);
    if (c.layout.collective == Collective::send_recv || c.op == ReduceOp::user) {
      if (reduces(c.layout.collective) || c.layout.collective == Collective::send_recv) continue;
    }
    if (c.algorithm == "auto") continue;
    return c;
  }
}

class RandomCalls : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(All, RandomCalls, ::testing::Values(2, 3, 4, 5, 7, 8),
                         [](const auto& info) { return std::to_string(info.param); });

TEST_P(RandomCalls, MatchASerialReference) {
  const int ranks = GetParam();
  const MailboxShape shape{
      .slots = 4, .blocks = kMostBlocks, .simple_bytes = 4 << 10, .lines_data = 1 << 10};
  EmulatedGpus gpus(ranks, shape);
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    testing::Random random(seed * 100 + static_cast<uint64_t>(ranks));
    const Case c = draw_collective(random, ranks);
    const GpuSetting setting{.protocol = random.one_in(2) ? Protocol::simple : Protocol::lines,
                             .blocks = static_cast<uint32_t>(1 + random.below(kMostBlocks)),
                             .threads = static_cast<unsigned>(1 + random.below(9)),
                             .seed = seed};
    const Algorithm& algorithm = require_algorithm(c.layout.collective, c.algorithm);
    ASSERT_NO_FATAL_FAILURE(testing::assert_right(gpus, algorithm, c, setting));
  }
}

}  // namespace
}  // namespace tutti
