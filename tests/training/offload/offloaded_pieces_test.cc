// Tests that a loop over pieces in files finds each range in memory, and never has more than a
// window in memory.
#include "training/offload/offloaded_pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "tests/training/data/folder.h"
#include "tests/training/offload/resident.h"

namespace tutti::training {
namespace {

using testing::resident_bytes;

constexpr int64_t kRange = 1 << 12;  // elements per range
constexpr int64_t kRanges = 64;      // ranges of the piece
constexpr size_t kWindow = 1 << 18;  // bytes; an eighth of masters and states

class OffloadedPieceLoops : public FolderTest {
 protected:
  OffloadedPieceLoops() : pager_(path("")), offloaded_(pager_, kWindow) {
    owned_.piece.count = kRange * kRanges;
    owned_.master = std::span(floats(masters_), static_cast<size_t>(owned_.piece.count));
    offloaded_.set_states([&](const PieceRange& range, std::vector<PageRange>& memory) {
      const std::span<const float> part(floats(states_) + range.first,
                                        static_cast<size_t>(range.count));
      memory.push_back({std::as_bytes(part), true});
    });
    for (int64_t i = 0; i < kRanges; ++i) ranges_.push_back({&owned_, i * kRange, kRange});
  }

  static float* floats(const std::shared_ptr<std::byte[]>& memory) {
    return reinterpret_cast<float*>(memory.get());
  }
  std::span<const std::byte> all(const std::shared_ptr<std::byte[]>& memory) const {
    return {memory.get(), kBytes};
  }
  size_t resident() const { return resident_bytes(all(masters_)) + resident_bytes(all(states_)); }
  // Blocks until all requests are done.
  void settle() { pager_.wait(pager_.evict(std::vector<PageRange>{{all(masters_), true}})); }

  static constexpr size_t kBytes = kRange * kRanges * sizeof(float);
  Pager pager_;
  std::shared_ptr<std::byte[]> masters_ = pager_.allocate(kBytes);
  std::shared_ptr<std::byte[]> states_ = pager_.allocate(kBytes);
  OffloadedPieces offloaded_;
  OwnedPiece owned_;
  std::vector<PieceRange> ranges_;
};

TEST_F(OffloadedPieceLoops, HaveAWindowInMemory) {
  for (int loop = 1; loop <= 3; ++loop) {
    offloaded_.begin_loop(ranges_, {});
    for (int64_t i = 0; i < kRanges; ++i) {
      offloaded_.enter(i);
      EXPECT_LE(resident(), kWindow);
      for (int64_t at = i * kRange; at < (i + 1) * kRange; ++at) {
        floats(masters_)[at] += 1;
        floats(states_)[at] += 2;
      }
      offloaded_.leave(i);
    }
    offloaded_.end_loop();
    settle();
    EXPECT_EQ(resident(), 0U);
  }
  for (int64_t at = 0; at < kRange * kRanges; ++at) {
    ASSERT_EQ(floats(masters_)[at], 3);
    ASSERT_EQ(floats(states_)[at], 6);
  }
}

// If one of two threads is a range behind the other, ranges are left in this order.
TEST_F(OffloadedPieceLoops, MayLeaveRangesInAnotherOrder) {
  offloaded_.begin_loop(ranges_, {});
  for (int64_t i = 0; i < kRanges; i += 2) {
    offloaded_.enter(i);
    offloaded_.enter(i + 1);
    floats(masters_)[i * kRange] = floats(masters_)[(i + 1) * kRange] = 1;
    offloaded_.leave(i + 1);
    offloaded_.leave(i);
  }
  offloaded_.end_loop();
  settle();
  EXPECT_EQ(resident(), 0U);
  for (int64_t i = 0; i < kRanges; ++i) EXPECT_EQ(floats(masters_)[i * kRange], 1);
}

TEST_F(OffloadedPieceLoops, MayEndBeforeTheirLastRange) {
  offloaded_.begin_loop(ranges_, {});
  offloaded_.enter(0);
  floats(states_)[0] = 5;
  offloaded_.end_loop();
  settle();
  EXPECT_EQ(resident(), 0U);
  EXPECT_EQ(floats(states_)[0], 5);
}

TEST_F(OffloadedPieceLoops, ReadOnlyWhatTheyUse) {
  offloaded_.evict(owned_);
  settle();
  offloaded_.begin_loop(ranges_, {.changes_values = false, .states = false});
  offloaded_.enter(0);
  EXPECT_GT(resident_bytes(all(masters_)), 0U);
  EXPECT_EQ(resident_bytes(all(states_)), 0U);
  offloaded_.end_loop();
}

}  // namespace
}  // namespace tutti::training
