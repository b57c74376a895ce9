#include "training/data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <stdexcept>

#include "tests/training/data/folder.h"

namespace tutti::training {
namespace {

using ::testing::HasSubstr;

TEST(LoaderTest, HandsOutInOrderWhoeverMadeIt) {
  for (const int workers : {0, 1, 2, 5}) {
    for (const int depth : {1, 2, 3, 8}) {
      // The item type can be moved, but neither copied nor default-constructed.
      Loader<std::unique_ptr<uint64_t>> loader(
          [](uint64_t index) { return std::make_unique<uint64_t>(index * index); }, 10, 200,
          workers, depth);
      for (uint64_t i = 10; i < 200; ++i) {
        ASSERT_EQ(loader.position(), i);
        const auto item = loader.next();
        ASSERT_TRUE(item.has_value());
        ASSERT_EQ(**item, i * i);
      }
      EXPECT_FALSE(loader.next().has_value());
      EXPECT_FALSE(loader.next().has_value());
    }
  }
}

TEST(LoaderTest, ALaterItemMayBeMadeFirst) {
  std::latch second_is_made(1);
  Loader<uint64_t> loader(
      [&](uint64_t index) {
        if (index == 0) second_is_made.wait();
        if (index == 1) second_is_made.count_down();
        return index;
      },
      0, 2, 2, 2);
  EXPECT_EQ(loader.next(), 0u);
  EXPECT_EQ(loader.next(), 1u);
}

// Counts live objects.
class Counted {
 public:
  explicit Counted(std::atomic<int>& living) : living_(&living) { ++living; }
  Counted(Counted&& other) noexcept : living_(std::exchange(other.living_, nullptr)) {}
  Counted& operator=(Counted&& other) noexcept {
    std::swap(living_, other.living_);
    return *this;
  }
  ~Counted() {
    if (living_ != nullptr) --*living_;
  }

 private:
  std::atomic<int>* living_;
};

TEST(LoaderTest, NoMoreThanDepthAreMadeAhead) {
  constexpr int kDepth = 3;
  std::atomic<int> living = 0;
  std::atomic<int> most = 0;
  std::atomic<uint64_t> begun = 0;
  {
    Loader<Counted> loader(
        [&](uint64_t) {
          ++begun;
          Counted item(living);
          const int now = living;
          int before = most;
          while (now > before && !most.compare_exchange_weak(before, now)) {
          }
          return item;
        },
        0, 500, 4, kDepth);
    for (uint64_t i = 0; i < 500; ++i) {
      EXPECT_LE(begun, i + kDepth);
      loader.next();
    }
  }
  EXPECT_LE(most, kDepth + 1) << "and one that the caller was given";
  EXPECT_EQ(living, 0);
  EXPECT_EQ(begun, 500u);
}

TEST(LoaderTest, AnExceptionIsThrownAtItsIndex) {
  for (const int workers : {0, 3}) {
    Loader<uint64_t> loader(
        [](uint64_t index) {
          if (index % 5 == 2) throw std::out_of_range(cat("item ", index));
          return index;
        },
        0, 20, workers, 4);
    for (uint64_t i = 0; i < 20; ++i) {
      if (i % 5 == 2) {
        try {
          loader.next();
          ADD_FAILURE() << "nothing thrown at " << i;
        } catch (const std::out_of_range& error) {
          EXPECT_EQ(error.what(), cat("item ", i));
        }
      } else {
        EXPECT_EQ(loader.next(), i);
      }
    }
    EXPECT_FALSE(loader.next().has_value());
  }
}

TEST(LoaderTest, StopsWithWorkLeft) {
  std::atomic<uint64_t> begun = 0;
  {
    Loader<uint64_t> loader(
        [&](uint64_t index) {
          ++begun;
          return index;
        },
        0, UINT64_MAX, 3, 8);
    EXPECT_EQ(loader.next(), 0u);
  }
  EXPECT_LE(begun, 9u);
}

TEST(LoaderTest, WaitsForAWorkerThatIsMakingAnItem) {
  std::latch begun(1);
  std::latch may_end(1);
  std::atomic<bool> ended = false;
  std::thread helper;
  {
    Loader<int> loader(
        [&](uint64_t) {
          begun.count_down();
          may_end.wait();
          ended = true;
          return 1;
        },
        0, 1, 1, 1);
    begun.wait();
    helper = std::thread([&] { may_end.count_down(); });
  }
  EXPECT_TRUE(ended);
  helper.join();
}

TEST(LoaderTest, ResumesAtAnyIndex) {
  Loader<uint64_t> first([](uint64_t index) { return index; }, 0, 10, 2, 4);
  for (int i = 0; i < 6; ++i) first.next();
  Loader<uint64_t> second([](uint64_t index) { return index; }, first.position(), 10, 2, 4);
  EXPECT_EQ(second.next(), 6u);
}

TEST(LoaderTest, AcceptsAnEmptyRange) {
  Loader<int> loader([](uint64_t) { return 1; }, 5, 5, 2, 1);
  EXPECT_FALSE(loader.next().has_value());
}

TEST(LoaderTest, RefusesInvalidNumbers) {
  const auto refusal = [](uint64_t first, uint64_t end, int workers, int depth) {
    return error_of([&] { Loader<int>([](uint64_t) { return 1; }, first, end, workers, depth); });
  };
  EXPECT_THAT(refusal(2, 1, 1, 1), HasSubstr("items 2 to 1"));
  EXPECT_THAT(refusal(0, 1, -1, 1), HasSubstr("-1 workers"));
  EXPECT_THAT(refusal(0, 1, 1, 0), HasSubstr("depth 0"));
}

}  // namespace
}  // namespace tutti::training
