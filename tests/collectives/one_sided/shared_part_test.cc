// Tests how ranks that access a part in place are synchronized: entry, locks and closing.
#include "collectives/one_sided/shared_part.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"

namespace tutti::one_sided {
namespace {

constexpr int kRanks = 3;

// A part in this process, as one rank sees it.
class Part {
 public:
  Part() : memory_(64), control_(std::aligned_alloc(64, PartControl::bytes(kRanks)), std::free) {
    new (control_.get()) PartControl{};
    for (int rank = 0; rank < kRanks; ++rank) {
      new (&control().entry(rank)) PartControl::Entry{};
    }
  }
  PartControl& control() { return *static_cast<PartControl*>(control_.get()); }
  SharedPart of(int rank, bool light_fences = false) {
    return {memory_, control_, rank, light_fences};
  }

 private:
  std::vector<std::byte> memory_;
  std::shared_ptr<void> control_;
};

bool nobody(int) { return false; }

TEST(SharedPart, ThreadsEnterUntilItIsClosed) {
  Part part;
  const SharedPart owner = part.of(0);
  const SharedPart other = part.of(1);
  const SharedPart::Entered entered = other.enter();
  ASSERT_EQ(entered, SharedPart::Entered::first);
  other.leave(entered);
  EXPECT_TRUE(owner.close(kRanks, nobody));
  EXPECT_EQ(other.enter(), SharedPart::Entered::no);
  EXPECT_TRUE(owner.close(kRanks, nobody)) << "who was refused is not inside";
}

TEST(SharedPart, CloseWaitsForAllThreadsInside) {
  Part part;
  const SharedPart owner = part.of(0);
  const SharedPart other = part.of(2);
  const SharedPart::Entered first = other.enter();
  std::atomic<int> inside = 0;
  std::atomic<bool> leave = false;
  std::jthread second([&] {
    const SharedPart::Entered entered = other.enter();
    EXPECT_EQ(entered, SharedPart::Entered::other);
    ++inside;
    leave.wait(false);
    --inside;
    other.leave(entered);
  });
  while (inside == 0) std::this_thread::yield();
  std::jthread closing([&] {
    EXPECT_TRUE(owner.close(kRanks, nobody));
    EXPECT_EQ(inside, 0);
  });
  while (part.control().closed == 0) std::this_thread::yield();
  other.leave(first);
  leave = true;
  leave.notify_all();
}

TEST(SharedPart, CloseGivesUpIfARankInsideHasDied) {
  Part part;
  const SharedPart owner = part.of(0);
  static_cast<void>(part.of(1).enter());
  EXPECT_FALSE(owner.close(kRanks, [](int rank) { return rank == 1; }));
}

TEST(SharedPart, LocksExcludeEachOther) {
  Part part;
  int count = 0;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const SharedPart own = part.of(rank);
        for (int i = 0; i < 1000; ++i) {
          own.lock(nobody);
          ++count;
          own.unlock();
        }
      });
    }
  }
  EXPECT_EQ(count, 3000);
}

TEST(SharedPart, TakesTheLockOfADeadRank) {
  Part part;
  part.of(2).lock(nobody);
  const SharedPart other = part.of(1);
  int asked = 0;
  other.lock([&](int holder) {
    EXPECT_EQ(holder, 2);
    return ++asked > 3;
  });
  EXPECT_EQ(part.control().lock, 2u);
  other.unlock();
  EXPECT_EQ(part.control().lock, 0u);
}

TEST(SharedPart, StopsWaitingForALockWhenTold) {
  Part part;
  part.of(2).lock(nobody);
  EXPECT_THROW(part.of(0).lock([](int) -> bool { throw Error(ErrorCode::rank_died, "rank 2"); }),
               Error);
}

}  // namespace
}  // namespace tutti::one_sided
