// Tests changes of members over real control channels. Ranks are threads.
#include "collectives/runtime/waiting/member_changes.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "tests/support/ranks.h"
#include "tests/transport/bootstrap/recording_client.h"
#include "transport/bootstrap/control/control.h"

namespace tutti::internal {
namespace {

constexpr uint64_t kCommunicator = 7;
constexpr int kRanks = 3;

struct Part {
  std::vector<int> left;
  bool could = true;
  bool made() const { return could; }
};
using Changes = MemberChanges<Part>;

Changes::Agree over(Control& control, std::chrono::milliseconds timeout) {
  return [&control, timeout](uint32_t number, const Contribution& contribution) {
    return agreed_in(control.agree(kCommunicator, number, contribution, timeout).get());
  };
}

uint64_t all_flags() { return ~uint64_t{0}; }

// Rank 1 answers the second question after rank 2 has stopped waiting for the answer.
TEST(MemberChanges, ContinueAtTheAgreementThatFailed) {
  testing::Barrier gave_up(2);
  testing::Barrier over_all(kRanks);
  testing::run_ranks(kRanks, [&](const Job& job) {
    const std::shared_ptr<Control> control = Control::connect(job);
    Changes changes(testing::everybody(kRanks));
    int made = 0;
    const auto make = [&](const Agreed& agreed) {
      ++made;
      if (job.rank == 1) gave_up.wait();
      return Part{agreed.living};
    };
    if (job.rank == 2) {
      // On a busy machine, the first agreement may fail too.
      while (!changes.unfinished()) {
        try {
          changes.change(all_flags, over(*control, std::chrono::milliseconds(200)), make);
          FAIL() << "rank 1 has not answered";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::timeout);
        }
      }
      EXPECT_THROW(changes.agree(1, over(*control, testing::kPatience)), Error) << "half-way";
      gave_up.wait();
    }
    const auto changed = changes.change(all_flags, over(*control, testing::kPatience), make);
    ASSERT_TRUE(changed);
    EXPECT_EQ(changed->made.left, testing::everybody(kRanks));
    EXPECT_TRUE(changed->by_all);
    EXPECT_EQ(changes.agreements(), 2U);
    EXPECT_EQ(made, 1);
    over_all.wait();
  });
}

TEST(MemberChanges, AllRanksNoticeThatOneCouldNotMakeItsPart) {
  testing::Barrier over_all(kRanks);
  testing::run_ranks(kRanks, [&](const Job& job) {
    const std::shared_ptr<Control> control = Control::connect(job);
    Changes changes(testing::everybody(kRanks));
    const auto changed =
        changes.change(all_flags, over(*control, testing::kPatience), [&](const Agreed& agreed) {
          return Part{agreed.living, job.rank != 1};
        });
    ASSERT_TRUE(changed);
    EXPECT_FALSE(changed->by_all);
    over_all.wait();
  });
}

}  // namespace
}  // namespace tutti::internal
