// Tests simulated times against times computed by hand.
#include "training/pipeline/simulate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "tests/training/pipeline/tables.h"

namespace tutti::training::pipeline {
namespace {

using testing::asynchronous_table;
using testing::empty_table;
using testing::gpipe_table;
using testing::looped_table;
using testing::one_f_one_b_table;
using testing::two_way_table;

Timeline timed(const Schedule& schedule, const Costs& costs = {}) {
  return simulate(make_plan(schedule), costs);
}

// 1F1B with flushes and GPipe are idle equally long, for any durations of forward and backward.
TEST(Simulate, BubbleOfGPipeAndOneFOneBIsTheClosedForm) {
  const Costs costs{.forward = {2}, .backward_input = {3}, .backward_weight = {2}};
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 12; ++m) {
      const double expected = static_cast<double>(p - 1) / (m + p - 1);
      const Timeline all_first = timed(gpipe_table(p, m), costs);
      EXPECT_DOUBLE_EQ(all_first.makespan, 7. * (m + p - 1));
      EXPECT_NEAR(all_first.bubble, expected, 1e-12);
      const Timeline in_turns = timed(one_f_one_b_table(p, m), costs);
      EXPECT_DOUBLE_EQ(in_turns.makespan, 7. * (m + p - 1));
      EXPECT_NEAR(in_turns.bubble, expected, 1e-12);
      // Rank 0 begins and ends each step, so that the period is the same without a barrier.
      EXPECT_DOUBLE_EQ(in_turns.period, in_turns.makespan);
      EXPECT_NEAR(in_turns.steady_bubble, expected, 1e-12);
    }
  }
}

TEST(Simulate, SpansOfTheTableInOrder) {
  const Timeline timeline = timed(one_f_one_b_table(2, 2));
  const auto expect = [&](size_t i, int rank, Entry entry, double start, double end) {
    const Span& span = timeline.spans.at(i);
    EXPECT_EQ(span.rank, rank) << i;
    EXPECT_EQ(span.entry, entry) << i;
    EXPECT_EQ(span.start, start) << i;
    EXPECT_EQ(span.end, end) << i;
  };
  ASSERT_EQ(timeline.spans.size(), 8U);
  expect(0, 0, {Kind::forward, 0, 0}, 0, 1);
  expect(1, 0, {Kind::forward, 1, 0}, 1, 2);
  expect(2, 0, {Kind::backward, 0, 0}, 4, 6);
  expect(3, 0, {Kind::backward, 1, 0}, 7, 9);
  expect(4, 1, {Kind::forward, 0, 1}, 1, 2);
  expect(5, 1, {Kind::backward, 0, 1}, 2, 4);
  expect(6, 1, {Kind::forward, 1, 1}, 4, 5);
  expect(7, 1, {Kind::backward, 1, 1}, 5, 7);
  EXPECT_EQ(timeline.makespan, 9);
  EXPECT_DOUBLE_EQ(timeline.bubble, 1. / 3);
}

// Rank 1 sends the gradient right after backward_input, so that rank 0 starts one unit of time
// earlier, twice.
TEST(Simulate, NoRankWaitsForBackwardWeight) {
  const Timeline timeline = timed(one_f_one_b_table(2, 2, true));
  EXPECT_EQ(timeline.spans.at(2).start, 3);  // I0 of rank 0
  EXPECT_EQ(timeline.makespan, 8);
}

TEST(Simulate, MessagesTakeTimeButOccupyNoRank) {
  // With one micro-batch on 3 ranks, a rank waits for every message.
  EXPECT_EQ(timed(gpipe_table(3, 1), {.message = {0.5}}).makespan, 9 + 4 * 0.5);
  // `message` has one value per boundary, for each of the two messages (forward and backward)
  // across it. Values beyond the last boundary are ignored.
  EXPECT_EQ(timed(gpipe_table(3, 1), {.message = {0.5, 2}}).makespan, 9 + 5);
  EXPECT_EQ(timed(gpipe_table(3, 1), {.message = {0.5, 2, 100}}).makespan, 9 + 5);
  // With many micro-batches, messages overlap with computation, so that only the fill and the drain
  // take longer.
  EXPECT_EQ(timed(gpipe_table(3, 8), {.message = {0.5}}).makespan, 3 * (8 + 2) + 4 * 0.5);
  // Several messages may be in flight at once. Each arrives 5 after it was sent.
  EXPECT_EQ(timed(gpipe_table(2, 3), {.message = {5}}).makespan, 3 * (3 + 1) + 2 * 5);
}

TEST(Simulate, NoMessagesOnOneRank) {
  Schedule schedule = empty_table("all here", 1, 1, 2);
  schedule.table[0] = {
      {Kind::forward, 0, 0}, {Kind::forward, 0, 1}, {Kind::backward, 0, 1}, {Kind::backward, 0, 0}};
  const Timeline timeline = timed(schedule, {.message = {100}});
  EXPECT_EQ(timeline.makespan, 6);
  EXPECT_EQ(timeline.bubble, 0);
  EXPECT_EQ(timeline.period, 6);
}

TEST(Simulate, ChunksOfDifferentLength) {
  // The slow chunk is in the middle. Forward takes 1 + 8 * 4 + 1, and backward as long.
  const Costs costs{
      .forward = {1, 4, 1}, .backward_input = {1, 2, 1}, .backward_weight = {0, 2, 0}};
  const Timeline timeline = timed(gpipe_table(3, 8), costs);
  EXPECT_EQ(timeline.makespan, 2 * (1 + 8 * 4 + 1));
  EXPECT_DOUBLE_EQ(timeline.bubble, 1 - (16. + 64 + 16) / (3 * 68));
}

// Each of two ranks has two chunks. The fill lasts one chunk, which is half of a rank's work.
TEST(Simulate, TwoChunksARankHalveTheBubble) {
  const Timeline timeline = timed(looped_table(2));
  EXPECT_EQ(timeline.makespan, 3 * (2 * 2 + 1));
  EXPECT_DOUBLE_EQ(timeline.bubble, 1. / 5);
}

// The bubble is (p - 2) / (2m + p - 2), which is 0 for 2 ranks.
TEST(Simulate, TwoDirections) {
  const Timeline timeline = timed(two_way_table());
  EXPECT_EQ(timeline.makespan, 6);
  EXPECT_EQ(timeline.bubble, 0);
}

// In a forward-only step, ranks drain while the next step fills. The makespan of one step therefore
// contains idle time, but the steady state does not.
TEST(Simulate, StepsFollowWithoutABarrier) {
  const Timeline timeline = timed(forward_only(gpipe_table(4, 5)));
  EXPECT_EQ(timeline.makespan, 8);
  EXPECT_DOUBLE_EQ(timeline.bubble, 3. / 8);
  EXPECT_EQ(timeline.period, 5);
  EXPECT_EQ(timeline.steady_bubble, 0);
  // The slowest rank determines the period, however far the earlier ranks run ahead.
  const Timeline uneven = timed(forward_only(gpipe_table(3, 2)), {.forward = {1, 3, 2}});
  EXPECT_EQ(uneven.period, 6);
  EXPECT_DOUBLE_EQ(uneven.steady_bubble, 1 - 12. / 18);
}

// In a slanted table, each rank ends as much later as it begins later. In steady state, no rank
// waits for another, as in ZB-H2 (Qi et al., Zero Bubble Pipeline Parallelism, section 3).
TEST(Simulate, SlantedTableHasNoSteadyBubble) {
  Schedule schedule = empty_table("slanted", 2, 3, 2);
  using enum Kind;
  schedule.table[0] = {{forward, 0, 0},         {forward, 1, 0},         {forward, 2, 0},
                       {backward_input, 0, 0},  {backward_weight, 0, 0}, {backward_input, 1, 0},
                       {backward_weight, 1, 0}, {backward_input, 2, 0},  {backward_weight, 2, 0}};
  schedule.table[1] = {{forward, 0, 1},         {backward_input, 0, 1},  {forward, 1, 1},
                       {backward_input, 1, 1},  {forward, 2, 1},         {backward_input, 2, 1},
                       {backward_weight, 0, 1}, {backward_weight, 1, 1}, {backward_weight, 2, 1}};
  const Timeline timeline = timed(schedule);
  EXPECT_EQ(timeline.makespan, 10);
  EXPECT_DOUBLE_EQ(timeline.bubble, 0.1);
  EXPECT_EQ(timeline.period, 9);
  EXPECT_EQ(timeline.steady_bubble, 0);
}

TEST(Simulate, UpdatesTakeNoTime) {
  EXPECT_EQ(timed(asynchronous_table(Updates::latest, 3, 6, 1)).makespan,
            timed(one_f_one_b_table(3, 6)).makespan);
}

TEST(Simulate, NothingTakesTime) {
  const Timeline timeline =
      timed(gpipe_table(2, 2), {.forward = {0}, .backward_input = {0}, .backward_weight = {0}});
  EXPECT_EQ(timeline.makespan, 0);
  EXPECT_EQ(timeline.bubble, 0);
  EXPECT_EQ(timeline.steady_bubble, 0);
}

TEST(Simulate, RefusesCostsThatMakeNoSense) {
  const Plan plan = make_plan(gpipe_table(3, 2));
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  EXPECT_THROW(simulate(plan, {.forward = {}}), Error);
  EXPECT_THROW(simulate(plan, {.forward = {1, 2}}), Error);
  EXPECT_THROW(simulate(plan, {.backward_input = {1, 2, 3, 4}}), Error);
  EXPECT_THROW(simulate(plan, {.backward_weight = {-1}}), Error);
  EXPECT_THROW(simulate(plan, {.message = {kInfinite}}), Error);
  EXPECT_THROW(simulate(plan, {.message = {std::nan("")}}), Error);
}

TEST(Simulate, PlanThatWaitsForItselfIsRefused) {
  Plan plan = make_plan(gpipe_table(2, 1));
  for (Action& action : plan.ranks[0].actions) {
    if (action.kind != Action::Kind::compute) continue;
    const bool is_forward = action.entry.kind == Kind::forward;
    action.entry.kind = is_forward ? Kind::backward : Kind::forward;
  }
  EXPECT_THROW(simulate(plan, {}), Error);
}

}  // namespace
}  // namespace tutti::training::pipeline
