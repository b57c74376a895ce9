// Breaks the rules of the kernels' protocol one by one, to show that the tests of these rules can
// fail. Each violation must be detected by a wrong value, by a mismatched message, or by the thread
// sanitizer (//tools:test --config=tsan).
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

#include "tests/collectives/gpu/many_calls.h"
#include "tests/support/host_gpu/kernels.h"

namespace tutti {
namespace {

using gpu::Protocol;
using gpu::Rules;
using testing::GpuSetting;
using testing::is_wrong_by;

const GpuSetting kSimple{.protocol = Protocol::simple};
const GpuSetting kLines{.protocol = Protocol::lines};
const GpuSetting kLent{.protocol = Protocol::simple, .lends = true};

struct PublishesBeforeData : Rules {
  static constexpr bool kPublishesBeforeData = true;
};
struct ReusesSlotsEarly : Rules {
  static constexpr uint64_t room(uint64_t slots) { return slots + 1; }
};
struct CountsEpochsFromZero : Rules {
  static constexpr uint32_t flag(uint64_t sequence) { return static_cast<uint32_t>(sequence); }
};
struct TakesOldLines : Rules {  // the flag is the same for all messages
  static constexpr uint32_t flag(uint64_t) { return 1; }
};
struct DoesNotWaitForReaders : Rules {
  static constexpr bool kWaitsForReaders = false;
};
struct DoesNotWaitForThreads : Rules {
  static constexpr bool kWaitsForThreads = false;
};

template <typename TheRules>
bool is_noticed(const GpuSetting& way, std::chrono::milliseconds patience = std::chrono::seconds(1),
                uint64_t seeds = 2000) {
  static constexpr host_gpu::NamedKernel kKernel =
      host_gpu::kernel_of<kernels::Integer<int32_t, uint32_t>, TheRules>("broken");
  return is_wrong_by(kKernel, way, patience, seeds);
}

TEST(Faults, TheUnbrokenRulesAreRight) {
  constexpr std::chrono::minutes kLong{1};
  constexpr uint64_t kFew = 15;
  EXPECT_FALSE(is_noticed<Rules>(kSimple, kLong, kFew));
  EXPECT_FALSE(is_noticed<Rules>(kLines, kLong, kFew));
  EXPECT_FALSE(is_noticed<Rules>(kLent, kLong, kFew));
}

TEST(Faults, LentMemoryOverwrittenBeforeItWasRead) {
  EXPECT_TRUE(is_noticed<DoesNotWaitForReaders>(kLent));
}

TEST(Faults, FlagBeforeData) { EXPECT_TRUE(is_noticed<PublishesBeforeData>(kSimple)); }

TEST(Faults, SlotsReusedEarly) {
  EXPECT_TRUE(is_noticed<ReusesSlotsEarly>(kSimple));
  EXPECT_TRUE(is_noticed<ReusesSlotsEarly>(kLines));
}

TEST(Faults, EpochsOffByOne) { EXPECT_TRUE(is_noticed<CountsEpochsFromZero>(kLines)); }

TEST(Faults, LinesOfEarlierMessages) { EXPECT_TRUE(is_noticed<TakesOldLines>(kLines)); }

TEST(Faults, SlotsGivenAwayBeforeAllThreadsAreDone) {
  EXPECT_TRUE(is_noticed<DoesNotWaitForThreads>(kSimple));
  EXPECT_TRUE(is_noticed<DoesNotWaitForThreads>(kLines));
}

}  // namespace
}  // namespace tutti
