// Tests the rule by which steps of a plan may begin.
#include "collectives/program/queue_walk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "collectives/program/algorithm.h"
#include "collectives/program/joint_walk.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

using Kind = Plan::QueueKind;

Plan plan_of(int32_t ranks, int32_t rank, std::vector<Step> steps) {
  Program program;
  program.input_chunks = program.output_chunks = 4;
  program.steps = std::move(steps);
  return make_plan(Collective::all_reduce, {.ranks = ranks, .rank = rank}, std::move(program),
                   false);
}

enum class By { words, queues };

class Walk {
 public:
  Walk(Plan plan, uint32_t turns, By by) : plan_(std::move(plan)) {
    if (by == By::queues) plan_.all_steps = 0;
    walk_.reset(plan_, turns);
  }

  // Returns the steps that may begin, each as "turn.step".
  std::vector<std::string> may_begin() const {
    std::vector<std::string> all;
    walk_.for_each_ready([&](uint32_t turn, int32_t step) { all.push_back(cat(turn, '.', step)); });
    return all;
  }
  bool begin(int32_t wanted) {
    bool begun = false;
    walk_.progress([&](uint32_t, int32_t step) {
      if (begun || step != wanted) return Attempt::waits;
      begun = true;
      return Attempt::begun;
    });
    return begun;
  }
  void finish(uint32_t turn, int32_t step) { walk_.finish(turn, step); }
  bool ended() const { return walk_.ended(); }

 private:
  Plan plan_;
  QueueWalk walk_;
};

class OneTurn : public ::testing::TestWithParam<By> {};
INSTANTIATE_TEST_SUITE_P(, OneTurn, ::testing::Values(By::words, By::queues),
                         [](const auto& by) { return by.param == By::words ? "words" : "queues"; });

TEST_P(OneTurn, StepsOfOneQueueBeginInOrderAndQueuesDoNotWaitForEachOther) {
  Walk walk(plan_of(3, 0,
                    {send({1}, {input(0)}), send({1}, {input(1)}), send({2}, {input(2)}),
                     recv(1, {output(0)})}),
            1, GetParam());
  EXPECT_THAT(walk.may_begin(), ElementsAre("0.0", "0.2", "0.3"));
  ASSERT_TRUE(walk.begin(0));
  EXPECT_THAT(walk.may_begin(), ElementsAre("0.1", "0.2", "0.3")) << "begun is enough";
}

TEST_P(OneTurn, AStepBeginsWhenTheStepsItNeedsHaveFinished) {
  Walk walk(plan_of(2, 0, {recv(1, {output(0)}), copy({output(0)}, {output(1)})}), 1, GetParam());
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

TEST_P(OneTurn, ASendToSeveralPeersIsReportedOnceAndWaitsForItsTurnWithAll) {
  Walk walk(plan_of(3, 0, {send({2}, {input(0)}), send({1, 2}, {input(1)}), send({1}, {input(2)})}),
            1, GetParam());
  EXPECT_THAT(walk.may_begin(), ElementsAre("0.0"));
  ASSERT_TRUE(walk.begin(0));
  EXPECT_THAT(walk.may_begin(), ElementsAre("0.1"));
  ASSERT_TRUE(walk.begin(1));
  EXPECT_THAT(walk.may_begin(), ElementsAre("0.2"));
}

TEST(QueueWalk, QueuesRunAheadOfTheOldestTurnByAtMostTheWindow) {
  constexpr uint32_t kTurns = QueueWalk::kWindow + 2;
  Walk walk(plan_of(2, 0, {send({1}, {input(0)}), recv(1, {output(0)})}), kTurns, By::queues);
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
  Walk walk(plan_of(2, 0, {recv(1, {output(0)}), send({1}, {output(0)})}), 2, By::queues);
  ASSERT_TRUE(walk.begin(0));
  walk.finish(0, 0);
  ASSERT_TRUE(walk.begin(0));
  EXPECT_THAT(walk.may_begin(), ElementsAre("0.1")) << "turn 1 has received nothing yet";
  ASSERT_TRUE(walk.begin(1));
  EXPECT_THAT(walk.may_begin(), IsEmpty());
}

TEST_P(OneTurn, ATurnWithoutStepsHasEnded) {
  EXPECT_TRUE(Walk(plan_of(2, 0, {}), 1, GetParam()).ended());
  EXPECT_TRUE(Walk(plan_of(2, 0, {}), 3, GetParam()).ended());
}

// The proof and the executor may use different representations of the same plan. Both must allow
// the same steps, in whatever order steps begin and finish.
TEST(QueueWalk, WordsAndQueuesLetTheSameStepsBegin) {
  std::mt19937 random(7);
  const auto any_of = [&](const auto& all) {
    return all[std::uniform_int_distribution<size_t>(0, all.size() - 1)(random)];
  };
  int walked = 0;
  for (const Algorithm* algorithm : all_algorithms()) {
    for (const int32_t ranks : {2, 3, 4, 8}) {
      if (!algorithm->supports({.ranks = ranks}).empty()) continue;
      for (const Plan& plan : make_plans(*algorithm, {.ranks = ranks})) {
        if (plan.all_steps == 0) continue;
        ++walked;
        Walk words(plan, 1, By::words);
        Walk queues(plan, 1, By::queues);
        std::vector<int32_t> in_flight;
        while (!words.ended()) {
          std::vector<std::string> ready = words.may_begin();
          ASSERT_THAT(queues.may_begin(), UnorderedElementsAreArray(ready)) << algorithm->name;
          const bool begins = in_flight.empty() || (!ready.empty() && random() % 2 == 0);
          ASSERT_TRUE(!begins || !ready.empty()) << algorithm->name;
          if (begins) {
            const int32_t step = std::stoi(any_of(ready).substr(2));
            ASSERT_TRUE(words.begin(step) && queues.begin(step)) << algorithm->name;
            in_flight.push_back(step);
          } else {
            const int32_t step = any_of(in_flight);
            std::erase(in_flight, step);
            words.finish(0, step);
            queues.finish(0, step);
          }
        }
        EXPECT_TRUE(queues.ended()) << algorithm->name;
      }
    }
  }
  EXPECT_GT(walked, 100);
}

// A step that one rank has begun is finished by another rank.
TEST(JointWalk, EndsWhenBegunStepsAreFinished) {
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
