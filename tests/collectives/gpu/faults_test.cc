// The rules by which kernels talk are broken one by one: each break must be noticed, by a wrong
// value, by a message that does not fit, or (//tools:test --config=tsan) by the thread sanitizer.
// So the tests of these rules can fail.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

#include "tests/collectives/gpu/many_calls.h"
#include "tests/support/host_gpu/kernels.h"

namespace tutti {
namespace {

using gpu::Protocol;
using gpu::Rules;
using testing::is_wrong_by;

struct PublishesBeforeData : Rules {
  static constexpr bool kPublishesBeforeData = true;
};
struct ReusesSlotsEarly : Rules {
  static constexpr uint64_t room(uint64_t slots) { return slots + 1; }
};
struct CountsEpochsFromZero : Rules {
  static constexpr uint32_t flag(uint64_t sequence) { return static_cast<uint32_t>(sequence); }
};
struct TakesOldLines : Rules {  // one flag for all messages
  static constexpr uint32_t flag(uint64_t) { return 1; }
};
struct DoesNotWaitForThreads : Rules {
  static constexpr bool kWaitsForThreads = false;
};

template <typename TheRules>
bool is_noticed(Protocol protocol, std::chrono::milliseconds patience = std::chrono::seconds(1),
                uint64_t seeds = 2000) {
  static constexpr host_gpu::NamedKernel kKernel =
      host_gpu::kernel_of<kernels::Integer<int32_t, uint32_t>, TheRules>("broken");
  return is_wrong_by(kKernel, protocol, patience, seeds);
}

TEST(Faults, TheRulesAsTheyAreAreRight) {
  constexpr std::chrono::minutes kLong{1};
  constexpr uint64_t kFew = 15;
  EXPECT_FALSE(is_noticed<Rules>(Protocol::simple, kLong, kFew));
  EXPECT_FALSE(is_noticed<Rules>(Protocol::lines, kLong, kFew));
}

TEST(Faults, FlagBeforeData) { EXPECT_TRUE(is_noticed<PublishesBeforeData>(Protocol::simple)); }

TEST(Faults, SlotsReusedEarly) {
  EXPECT_TRUE(is_noticed<ReusesSlotsEarly>(Protocol::simple));
  EXPECT_TRUE(is_noticed<ReusesSlotsEarly>(Protocol::lines));
}

TEST(Faults, EpochsOffByOne) { EXPECT_TRUE(is_noticed<CountsEpochsFromZero>(Protocol::lines)); }

TEST(Faults, LinesOfEarlierMessages) { EXPECT_TRUE(is_noticed<TakesOldLines>(Protocol::lines)); }

TEST(Faults, SlotsGivenAwayBeforeAllThreadsAreDone) {
  EXPECT_TRUE(is_noticed<DoesNotWaitForThreads>(Protocol::simple));
  EXPECT_TRUE(is_noticed<DoesNotWaitForThreads>(Protocol::lines));
}

}  // namespace
}  // namespace tutti
