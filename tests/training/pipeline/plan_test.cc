// Tests plans of small tables against plans written by hand, and tables for which there is no plan.
#include "training/pipeline/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tests/training/pipeline/tables.h"

namespace tutti::training::pipeline {
namespace {

using testing::asynchronous_table;
using ::testing::ElementsAre;
using testing::empty_table;
using testing::gpipe_table;
using ::testing::HasSubstr;
using testing::looped_table;
using testing::one_f_one_b_table;
using testing::two_way_table;

// Returns the actions of a rank as text: "F1<0" receives the input of F1 from rank 0, "F1" computes
// it, "F1>2" sends its result to rank 2, and "U2" updates the weights to version 2.
std::string messages(const Plan& plan, size_t rank, bool with_chunk = false) {
  std::string text;
  for (const Action& action : plan.ranks.at(rank).actions) {
    const std::string entry = to_string(action.entry, with_chunk);
    text += text.empty() ? "" : " ";
    if (action.kind == Action::Kind::receive) text += cat(entry, '<', action.peer);
    if (action.kind == Action::Kind::compute) text += entry;
    if (action.kind == Action::Kind::send) text += cat(entry, '>', action.peer);
    if (action.kind == Action::Kind::update) text += cat('U', action.version);
  }
  return text;
}

// Returns the computations of a rank, each with one field. If `part` is the slot, "F1/0" is F1 in
// slot 0.
std::string computed(const Plan& plan, size_t rank, int Action::*part) {
  std::string text;
  for (const Action& action : plan.ranks.at(rank).actions) {
    if (action.kind == Action::Kind::update) text += cat(" U", action.version);
    if (action.kind != Action::Kind::compute) continue;
    text += cat(text.empty() ? "" : " ", to_string(action.entry, false), '/', action.*part);
  }
  return text;
}

std::string refusal(const Schedule& schedule) {
  try {
    make_plan(schedule);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "not refused";
}

TEST(Plan, ReceivesOneEntryAheadAndSendsImmediately) {
  const Plan plan = make_plan(one_f_one_b_table(3, 3));
  EXPECT_EQ(messages(plan, 0), "F0 F0>1 F1 F1>1 B0<1 F2 F2>1 B1<1 B0 B2<1 B1 B2");
  EXPECT_EQ(messages(plan, 1),
            "F0<0 F1<0 F0 F0>2 B0<2 F1 F1>2 F2<0 B0 B0>0 B1<2 F2 F2>2 B2<2 B1 B1>0 B2 B2>0");
  EXPECT_EQ(messages(plan, 2), "F0<1 F0 F1<1 B0 B0>1 F1 F2<1 B1 B1>1 F2 B2 B2>1");
}

TEST(Plan, ReceivesInTheOrderOfTheChannel) {
  // Rank 1 needs the second message first, and must have received the first one by then.
  Schedule schedule = gpipe_table(2, 2);
  std::swap(schedule.table[1][0], schedule.table[1][1]);
  EXPECT_EQ(messages(make_plan(schedule), 1), "F0<0 F1<0 F1 F0 B0 B0>0 B1 B1>0");
}

TEST(Plan, NoMessagesWithinARank) {
  Schedule schedule = empty_table("all here", 1, 1, 2);
  schedule.table[0] = {
      {Kind::forward, 0, 0}, {Kind::forward, 0, 1}, {Kind::backward, 0, 1}, {Kind::backward, 0, 0}};
  const Plan plan = make_plan(schedule);
  EXPECT_EQ(messages(plan, 0, true), "F0.0 F0.1 B0.1 B0.0");
  EXPECT_EQ(plan.ranks[0].slots, 2);  // one for each chunk
}

// One channel carries activations to the next rank and, because of the loop, gradients.
TEST(Plan, ChunksInALoop) {
  const Plan plan = make_plan(looped_table(1));
  EXPECT_EQ(messages(plan, 0, true),
            "F0.2<1 F0.0 F0.0>1 B0.2<1 F0.2 F0.2>1 B0.0<1 B0.2 B0.2>1 B0.0");
}

TEST(Plan, SplitBackwardSendsAfterItsInputs) {
  const Plan plan = make_plan(one_f_one_b_table(2, 1, true));
  EXPECT_EQ(messages(plan, 1), "F0<0 F0 I0 I0>0 W0");
  EXPECT_EQ(messages(plan, 0), "I0<1 F0 F0>1 I0 W0");
}

TEST(Plan, MessagesFollowTheTable) {
  const Plan plan = make_plan(two_way_table());
  EXPECT_EQ(messages(plan, 0, true), "F1.1<1 F0.0 F0.0>1 F1.1 B0.0<1 B1.1 B1.1>1 B0.0");
  EXPECT_THAT(plan.holders, ElementsAre(ElementsAre(0, 1), ElementsAre(0, 1)));
  EXPECT_THAT(plan.ranks[0].chunks, ElementsAre(0, 1));
  EXPECT_EQ(plan.rank_of(0, 0), 0);
  EXPECT_EQ(plan.rank_of(0, 1), 1);
  EXPECT_EQ(plan.rank_of(1, 0), 1);
  EXPECT_EQ(plan.rank_of(1, 1), 0);
}

TEST(Plan, TakesTheLowestFreeSlot) {
  const Plan plan = make_plan(one_f_one_b_table(3, 5));
  EXPECT_EQ(computed(plan, 0, &Action::slot), "F0/0 F1/1 F2/2 B0/0 F3/0 B1/1 F4/1 B2/2 B3/0 B4/1");
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(plan.ranks[rank].slots, 3 - static_cast<int>(rank));
    EXPECT_EQ(plan.ranks[rank].versions, 1);
  }
  EXPECT_EQ(make_plan(gpipe_table(3, 5)).ranks[2].slots, 5);
}

TEST(Plan, SlotIsFreeAfterBackwardWeight) {
  Schedule schedule = empty_table("late weights", 1, 3, 1);
  using enum Kind;
  schedule.table[0] = {{forward, 0, 0},         {backward_input, 0, 0}, {forward, 1, 0},
                       {backward_weight, 0, 0}, {forward, 2, 0},        {backward_input, 1, 0},
                       {backward_weight, 1, 0}, {backward_input, 2, 0}, {backward_weight, 2, 0}};
  EXPECT_EQ(computed(make_plan(schedule), 0, &Action::slot),
            "F0/0 I0/0 F1/1 W0/0 F2/0 I1/1 W1/1 I2/0 W2/0");
}

TEST(Plan, MessagesNameTheSlotOfTheirEntry) {
  for (const RankPlan& rank : make_plan(gpipe_table(3, 4)).ranks) {
    for (const Action& action : rank.actions) EXPECT_EQ(action.slot, action.entry.micro_batch);
  }
}

TEST(Plan, ForwardAloneNeedsOneSlot) {
  const Plan plan = make_plan(forward_only(asynchronous_table(Updates::latest, 3, 4, 1)));
  EXPECT_EQ(messages(plan, 1), "F0<0 F1<0 F0 F0>2 F2<0 F1 F1>2 F3<0 F2 F2>2 F3 F3>2");
  EXPECT_EQ(computed(plan, 1, &Action::slot), "F0/0 F1/0 F2/0 F3/0");
  EXPECT_EQ(plan.ranks[1].slots, 1);
  EXPECT_EQ(plan.ranks[1].versions, 1);
}

// In PipeDream (Narayanan et al., 2019, section 3.3), the backward of a micro-batch uses the same
// weights as its forward.
TEST(Plan, LatestVersions) {
  const Plan plan = make_plan(asynchronous_table(Updates::latest, 2, 4, 1));
  EXPECT_EQ(computed(plan, 0, &Action::version),
            "F0/0 F1/0 B0/0 U1 F2/1 B1/0 U2 F3/2 B2/1 U3 B3/2 U4");
  EXPECT_EQ(computed(plan, 1, &Action::version),
            "F0/0 B0/0 U1 F1/1 B1/1 U2 F2/2 B2/2 U3 F3/3 B3/3 U4");
  EXPECT_EQ(plan.ranks[0].versions, 2);
  EXPECT_EQ(plan.ranks[1].versions, 1);
}

// In PipeDream-2BW (Narayanan et al., 2021, section 3.1), all ranks use the same version for a
// micro-batch.
TEST(Plan, DelayedVersions) {
  const Plan plan = make_plan(asynchronous_table(Updates::delayed, 2, 6, 2));
  EXPECT_EQ(computed(plan, 0, &Action::version),
            "F0/0 F1/0 B0/0 F2/0 B1/0 U1 F3/0 B2/0 F4/1 B3/0 U2 F5/1 B4/1 B5/1 U3");
  EXPECT_EQ(computed(plan, 1, &Action::version),
            "F0/0 B0/0 F1/0 B1/0 U1 F2/0 B2/0 F3/0 B3/0 U2 F4/1 B4/1 F5/1 B5/1 U3");
  EXPECT_EQ(plan.ranks[0].versions, 2);
  EXPECT_EQ(plan.ranks[1].versions, 2);
}

TEST(Plan, UpdateComesAfterTheLastChunkOfTheRank) {
  Schedule schedule = looped_table(2);
  schedule.updates = Updates::latest;
  schedule.accumulated = 2;
  EXPECT_EQ(computed(make_plan(schedule), 0, &Action::version),
            "F0/0 F1/0 F0/0 F1/0 B0/0 B1/0 B0/0 B1/0 U1");
}

TEST(Plan, RefusesMissingEntries) {
  Schedule schedule = one_f_one_b_table(2, 2);
  schedule.table[1].pop_back();
  EXPECT_THAT(refusal(schedule), HasSubstr("rank 1, entry 2 (F1): no rank computes the backward of "
                                           "micro-batch 1 through chunk 1"));
  schedule = one_f_one_b_table(2, 2, true);
  schedule.table[1].pop_back();
  EXPECT_THAT(refusal(schedule), HasSubstr("rank 1, entry 4 (I1): no rank computes the "
                                           "backward_weight of micro-batch 1 through chunk 1"));
  schedule = gpipe_table(2, 2);
  schedule.table[0].erase(schedule.table[0].begin());
  EXPECT_THAT(refusal(schedule),
              HasSubstr("no rank computes the forward of micro-batch 0 through chunk 0"));
}

TEST(Plan, RefusesDuplicateEntries) {
  Schedule schedule = one_f_one_b_table(2, 2);
  schedule.table[1].push_back({Kind::forward, 0, 1});
  EXPECT_THAT(refusal(schedule), HasSubstr("rank 1, entry 4 (F0): forward of micro-batch 0 through "
                                           "chunk 1 was computed already, at rank 1, entry 0"));
  // A whole backward also computes the gradients of the weights, so that W0 is a duplicate.
  schedule = one_f_one_b_table(2, 2);
  schedule.table[1].push_back({Kind::backward_weight, 0, 1});
  EXPECT_THAT(refusal(schedule), HasSubstr("rank 1, entry 4 (W0): "));
}

TEST(Plan, RefusesBackwardOnAnotherRank) {
  Schedule schedule = gpipe_table(2, 1);
  std::swap(schedule.table[0][1], schedule.table[1][1]);
  EXPECT_THAT(
      refusal(schedule),
      HasSubstr(
          "rank 1, entry 1 (B0): its input is kept on another rank, by rank 0, entry 0 (F0)"));
}

TEST(Plan, RefusesBackwardBeforeForward) {
  Schedule schedule = gpipe_table(2, 1);
  std::swap(schedule.table[1][0], schedule.table[1][1]);
  EXPECT_THAT(refusal(schedule), HasSubstr("rank 1, entry 0 (B0): comes before its input, rank "
                                           "1, entry 1 (F0)"));
}

TEST(Plan, RefusesNumbersOutsideTheSchedule) {
  Schedule schedule = gpipe_table(2, 2);
  schedule.table[1][1].micro_batch = 2;
  EXPECT_THAT(refusal(schedule), HasSubstr("rank 1, entry 1 (F2): there is no forward of"));
  schedule = gpipe_table(2, 2);
  schedule.table[0][1].chunk = -1;
  EXPECT_THAT(refusal(schedule), HasSubstr("rank 0, entry 1"));
  schedule = gpipe_table(2, 2);
  schedule.table.pop_back();
  EXPECT_THAT(refusal(schedule), HasSubstr("a table of 1 ranks for 2 ranks"));
  EXPECT_THAT(refusal(asynchronous_table(Updates::latest, 2, 5, 2)),
              HasSubstr("an update after every 2 of 5 micro-batches"));
}

}  // namespace
}  // namespace tutti::training::pipeline
