// The rule by which the steps of a plan begin.
#include "collectives/program/queue_walk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "collectives/program/joint_walk.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Kind = Plan::QueueKind;

Plan plan_of(int32_t ranks, int32_t rank, std::vector<Step> steps) {
  Program program;
  program.input_chunks = program.output_chunks = 4;
  program.steps = std::move(steps);
  return make_plan(Collective::all_reduce, {.ranks = ranks, .rank = rank}, std::move(program),
                   false);
}

class Walk {
 public:
  Walk(Plan plan, uint32_t turns) : plan_(std::move(plan)) { walk_.reset(plan_, turns); }

  // Every step that may begin, as "turn.step".
  std::vector<std::string> may_begin() const {
    std::vector<std::string> all;
    for (size_t queue = 0; queue < walk_.queues(); ++queue) {
      if (const auto next = walk_.next(queue)) all.push_back(cat(next->turn, '.', next->step));
    }
    return all;
  }
  bool begin(int32_t step) {
    for (size_t queue = 0; queue < walk_.queues(); ++queue) {
      const std::optional<QueueWalk::Next> next = walk_.next(queue);
      if (!next || next->step != step) continue;
      walk_.begin(*next);
      return true;
    }
    return false;
  }
  void finish(uint32_t turn, int32_t step) { walk_.finish(turn, step); }
  bool ended() const { return walk_.ended(); }

 private:
  Plan plan_;
  QueueWalk walk_;
};

TEST(QueueWalk, StepsOfOneQueueBeginInOrderAndQueuesDoNotWaitForEachOther) {
  Walk walk(plan_of(3, 0,
                    {send({1}, {input(0)}), send({1}, {input(1)}), send({2}, {input(2)}),
                     recv(1, {output(0)})}),
            1);
  EXPECT_THAT(walk.may_begin(), ElementsAre("0.0", "0.2", "0.3"));
  ASSERT_TRUE(walk.begin(0));
  EXPECT_THAT(walk.may_begin(), ElementsAre("0.1", "0.2", "0.3")) << "begun is enough";
}

TEST(QueueWalk, AStepBeginsWhenWhatItNeedsIsFinishedNotBegun) {
  Walk walk(plan_of(2, 0, {recv(1, {output(0)}), copy({output(0)}, {output(1)})}), 1);
  EXPECT_THAT(walk.may_begin(), ElementsAre("0.0"));
  ASSERT_TRUE(walk.begin(0));
  EXPECT_THAT(walk.may_begin(), IsEmpty());
  walk.finish(0, 0);
  EXPECT_THAT(walk.may_begin(), ElementsAre("0.1"));
  EXPECT_FALSE(walk.ended());
  ASSERT_TRUE(walk.begin(1));
  walk.finish(0, 1);
  EXPECT_TRUE(walk.ended());
}

TEST(QueueWalk, ASendToSeveralPeersIsToldOnceAndWaitsForItsTurnWithAll) {
  Walk walk(plan_of(3, 0, {send({2}, {input(0)}), send({1, 2}, {input(1)}), send({1}, {input(2)})}),
            1);
  EXPECT_THAT(walk.may_begin(), ElementsAre("0.0"));
  ASSERT_TRUE(walk.begin(0));
  EXPECT_THAT(walk.may_begin(), ElementsAre("0.1"));
  ASSERT_TRUE(walk.begin(1));
  EXPECT_THAT(walk.may_begin(), ElementsAre("0.2"));
}

TEST(QueueWalk, QueuesRunAheadOfTheOldestTurnByTheWindowOnly) {
  constexpr uint32_t kTurns = QueueWalk::kWindow + 2;
  Walk walk(plan_of(2, 0, {send({1}, {input(0)}), recv(1, {output(0)})}), kTurns);
  for (uint32_t turn = 0; turn < QueueWalk::kWindow; ++turn) {
    ASSERT_TRUE(walk.begin(0)) << turn;
    walk.finish(turn, 0);
  }
  EXPECT_THAT(walk.may_begin(), ElementsAre("0.1")) << "nothing was received in turn 0";
  ASSERT_TRUE(walk.begin(1));
  walk.finish(0, 1);
  EXPECT_THAT(walk.may_begin(), ElementsAre(cat(QueueWalk::kWindow, ".0"), "1.1"));
}

TEST(QueueWalk, AnotherTurnNeedsItsOwnSteps) {
  Walk walk(plan_of(2, 0, {recv(1, {output(0)}), send({1}, {output(0)})}), 2);
  ASSERT_TRUE(walk.begin(0));
  walk.finish(0, 0);
  ASSERT_TRUE(walk.begin(0));
  EXPECT_THAT(walk.may_begin(), ElementsAre("0.1")) << "turn 1 has received nothing yet";
  ASSERT_TRUE(walk.begin(1));
  EXPECT_THAT(walk.may_begin(), IsEmpty());
}

TEST(QueueWalk, WithoutStepsItHasEnded) { EXPECT_TRUE(Walk(plan_of(2, 0, {}), 3).ended()); }

// What was begun is finished by somebody else.
TEST(JointWalk, EndsWhenWhatWasBegunIsFinished) {
  const std::vector<Plan> plans = {plan_of(2, 0, {send({1}, {input(0)})}),
                                   plan_of(2, 1, {recv(0, {output(0)})})};
  for (const bool taken : {false, true}) {
    JointWalk walk(plans);
    walk.run([&](int32_t rank, int32_t) {
      if (rank == 0) return Attempt::begun;
      if (!taken) return Attempt::waits;
      walk.finish(0, 0);
      return Attempt::finished;
    });
    EXPECT_EQ(walk.ended(), taken);
  }
}

}  // namespace
}  // namespace tutti
