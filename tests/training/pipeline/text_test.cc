#include "training/pipeline/text.h"

#include <gtest/gtest.h>

#include "tests/training/pipeline/hand_made.h"

namespace tutti::training::pipeline {
namespace {

using testing::Shown;
using testing::two_chunks;
using testing::two_ranks;

std::string text(const Shown& shown) { return to_text(shown.plan, shown.timeline); }

TEST(PipelineText, HasALineForEachRankAndAColumnForEachSlot) {
  EXPECT_EQ(text(two_ranks()),
            "rank 0  F0 F1 .  .  B0--- .  B1---\n"
            "rank 1  .  F0 B0--- F1 B1--- .  .\n");
}

TEST(PipelineText, NamesChunksWhereThereAreMoreThanRanks) {
  EXPECT_EQ(text(two_chunks()), "rank 0  F0.0 F0.1 I0.1 W0.1 I0.0 W0.0\n");
}

TEST(PipelineText, FindsSlotsShorterThanAnyEntry) {
  Shown shown = two_ranks();
  shown.timeline.spans = {{0, {Kind::forward, 0, 0}, 0, 0.2},
                          {1, {Kind::backward, 0, 1}, 0.2, 0.5}};
  shown.timeline.makespan = 0.5;
  EXPECT_EQ(text(shown),
            "rank 0  F0--- .  .  .\n"
            "rank 1  .  .  B0------\n");
}

TEST(PipelineText, ShowsOnlyTheOrderIfThereAreNoSlots) {
  Shown shown = two_ranks();
  shown.timeline.spans[0].end = 0.9137;
  EXPECT_EQ(text(shown),
            "rank 0  F0 F1 B0 B1\n"
            "rank 1  F0 B0 F1 B1\n");
}

}  // namespace
}  // namespace tutti::training::pipeline
