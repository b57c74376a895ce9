// Tests that the checker accepts all schedules, and that it refuses plans with planted faults and
// names the place of the fault.
#include "training/pipeline/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tests/training/pipeline/tables.h"
#include "training/pipeline/schedules.h"

namespace tutti::training::pipeline {
namespace {

using testing::asynchronous_table;
using testing::empty_table;
using testing::gpipe_table;
using ::testing::HasSubstr;
using testing::looped_table;
using testing::one_f_one_b_table;
using ::testing::StartsWith;
using testing::two_way_table;

std::vector<Action>& actions(Plan& plan, size_t rank) { return plan.ranks.at(rank).actions; }

// Returns the first action of this kind for this entry.
size_t find(const Plan& plan, size_t rank, Action::Kind kind, const Entry& entry) {
  const std::vector<Action>& all = plan.ranks.at(rank).actions;
  const auto found = std::ranges::find_if(
      all, [&](const Action& action) { return action.kind == kind && action.entry == entry; });
  EXPECT_NE(found, all.end());
  return static_cast<size_t>(found - all.begin());
}

std::string refusal(const Plan& plan) {
  try {
    check(plan);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "not refused";
}

// Returns plans of various kinds: whole and split backward, loops, two directions, and both rules
// for updates.
std::vector<Plan> samples() {
  std::vector<Plan> plans;
  for (const Schedule& schedule :
       {gpipe_table(3, 3), one_f_one_b_table(3, 4), one_f_one_b_table(3, 4, true), looped_table(3),
        two_way_table(), asynchronous_table(Updates::latest, 3, 4, 1),
        asynchronous_table(Updates::delayed, 2, 6, 2), forward_only(gpipe_table(3, 3))}) {
    plans.push_back(make_plan(schedule));
  }
  return plans;
}

// Calls change(plan, rank, action) for every action, each time with a new copy of the plan. If it
// returns true, it has planted a fault, and the plan must be refused.
template <typename Change>
void expect_refused_everywhere(Change change) {
  int planted = 0;
  for (const Plan& plan : samples()) {
    EXPECT_NO_THROW(check(plan));
    for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
      for (size_t i = 0; i < plan.ranks[rank].actions.size(); ++i) {
        Plan faulty = plan;
        if (!change(faulty, rank, i)) continue;
        EXPECT_THAT(refusal(faulty), HasSubstr(cat("rank ", rank, ",")))
            << plan.schedule.name << ", action " << i;
        ++planted;
      }
    }
  }
  EXPECT_GT(planted, 0);
}

void prove(const ScheduleKind& kind, const Shape& shape) {
  const Schedule schedule = make_schedule(kind, shape);
  const Plan plan = make_plan(schedule);
  const Bounds bounds = check(plan);
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    EXPECT_EQ(bounds.ranks[rank].activations, plan.ranks[rank].slots);
    EXPECT_EQ(bounds.ranks[rank].versions, plan.ranks[rank].versions);
    // PipeDream-2BW is named after its two buffers of weights.
    EXPECT_LE(bounds.ranks[rank].versions, kind.updates == Updates::delayed ? 2 : shape.ranks);
  }
  for (const RankBounds& rank : check(make_plan(forward_only(schedule))).ranks) {
    EXPECT_LE(rank.activations, 1);
    EXPECT_EQ(rank.versions, 1);
  }
}

// Checks each kind of schedule over its whole range of shapes, and also its forward-only table.
class EverySchedule : public ::testing::TestWithParam<size_t> {};

TEST_P(EverySchedule, CheckProvesTheSchedule) {
  const ScheduleKind& kind = all_schedules()[GetParam()];
  for (int p = 1; p <= 16; ++p) {
    for (int m = 1; m <= 32; ++m) {
      for (int v = 1; v <= (kind.has_virtual_stages ? 4 : 1); ++v) {
        for (int a = 1; a <= (kind.updates == Updates::flushed ? 1 : m); ++a) {
          const Shape shape{p, m, v, a};
          if (!kind.why_not(shape).empty()) continue;
          SCOPED_TRACE(cat(kind.name, " p=", p, " m=", m, " v=", v, " a=", a));
          ASSERT_NO_THROW(prove(kind, shape));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Check, EverySchedule, ::testing::Range(size_t{0}, all_schedules().size()),
                         [](const ::testing::TestParamInfo<size_t>& info) {
                           std::string name(all_schedules()[info.param].name);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(Check, BoundsOfGPipeAndOneFOneB) {
  const Bounds all_first = check(make_plan(gpipe_table(4, 6)));
  const Bounds in_turns = check(make_plan(one_f_one_b_table(4, 6)));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(all_first.ranks.at(rank).activations, 6);
    EXPECT_EQ(in_turns.ranks.at(rank).activations, 4 - rank);
    EXPECT_EQ(in_turns.ranks.at(rank).versions, 1);
  }
}

// A rank has received at most the inputs of an entry and of the next one.
TEST(Check, BoundsOfReceives) {
  const Bounds bounds = check(make_plan(gpipe_table(3, 4)));
  EXPECT_EQ(bounds.ranks[0].received, 2);
  EXPECT_EQ(bounds.ranks[1].received, 2);
  EXPECT_EQ(bounds.ranks[2].received, 2);
  EXPECT_EQ(check(make_plan(gpipe_table(1, 4))).ranks[0].received, 0);
}

TEST(Check, BoundsOfVersions) {
  const Bounds latest = check(make_plan(asynchronous_table(Updates::latest, 4, 8, 1)));
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(latest.ranks.at(rank).versions, 4 - rank);
  const Bounds delayed = check(make_plan(asynchronous_table(Updates::delayed, 4, 16, 4)));
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(delayed.ranks.at(rank).versions, 2);
}

TEST(CheckRefuses, AnActionLeftOut) {
  expect_refused_everywhere([](Plan& plan, size_t rank, size_t i) {
    actions(plan, rank).erase(actions(plan, rank).begin() + static_cast<std::ptrdiff_t>(i));
    return true;
  });
}

TEST(CheckRefuses, AnActionDoubled) {
  expect_refused_everywhere([](Plan& plan, size_t rank, size_t i) {
    const Action doubled = actions(plan, rank)[i];
    actions(plan, rank)
        .insert(actions(plan, rank).begin() + static_cast<std::ptrdiff_t>(i), doubled);
    return true;
  });
}

TEST(CheckRefuses, TwoEntriesSwapped) {
  expect_refused_everywhere([](Plan& plan, size_t rank, size_t i) {
    std::vector<Action>& all = actions(plan, rank);
    const auto is_entry = [](const Action& action) { return action.kind == Action::Kind::compute; };
    const auto next =
        std::find_if(all.begin() + static_cast<std::ptrdiff_t>(i) + 1, all.end(), is_entry);
    if (!is_entry(all[i]) || next == all.end()) return false;
    std::swap(all[i], *next);
    return true;
  });
}

TEST(CheckRefuses, AnotherSlot) {
  expect_refused_everywhere([](Plan& plan, size_t rank, size_t i) {
    if (actions(plan, rank)[i].kind == Action::Kind::update) return false;
    ++actions(plan, rank)[i].slot;
    return true;
  });
}

TEST(CheckRefuses, AnotherPeer) {
  for (const int peer : {-1, 0, 1, 2, 3}) {
    expect_refused_everywhere([peer](Plan& plan, size_t rank, size_t i) {
      Action& action = actions(plan, rank)[i];
      const bool is_message =
          action.kind == Action::Kind::receive || action.kind == Action::Kind::send;
      return is_message && std::exchange(action.peer, peer) != peer;
    });
  }
}

TEST(CheckRefuses, AnotherVersion) {
  for (const int step : {-1, 1}) {
    expect_refused_everywhere([step](Plan& plan, size_t rank, size_t i) {
      Action& action = actions(plan, rank)[i];
      if (action.kind != Action::Kind::compute && action.kind != Action::Kind::update) return false;
      action.version += step;
      return true;
    });
  }
}

TEST(CheckRefuses, AnotherMicroBatch) {
  for (const int step : {-1, 1}) {
    expect_refused_everywhere([step](Plan& plan, size_t rank, size_t i) {
      actions(plan, rank)[i].entry.micro_batch += step;
      return true;
    });
  }
}

TEST(CheckRefuses, ReceiveLeftOut) {
  Plan plan = make_plan(one_f_one_b_table(3, 3));
  const size_t at = find(plan, 1, Action::Kind::receive, {Kind::backward, 0, 1});
  actions(plan, 1).erase(actions(plan, 1).begin() + static_cast<std::ptrdiff_t>(at));
  EXPECT_THAT(
      refusal(plan),
      StartsWith("rank 1, action 7 (B0): nothing receives its input from rank 2, action 3 (B0)"));
}

TEST(CheckRefuses, SendLeftOut) {
  Plan plan = make_plan(one_f_one_b_table(3, 3));
  actions(plan, 1).erase(actions(plan, 1).begin() + 3);
  EXPECT_THAT(refusal(plan), StartsWith("rank 1, action 2 (F0): nothing sends its result, which is "
                                        "awaited at rank 2, action 1 (F0)"));
}

TEST(CheckRefuses, EntryLeftOut) {
  Plan plan = make_plan(gpipe_table(2, 2));
  const size_t at = find(plan, 1, Action::Kind::compute, {Kind::backward, 1, 1});
  actions(plan, 1).erase(actions(plan, 1).begin() + static_cast<std::ptrdiff_t>(at));
  EXPECT_THAT(refusal(plan), StartsWith("rank 1, at its end: entry 3 of the table, the backward of "
                                        "micro-batch 1 through chunk 1, is not computed"));
}

TEST(CheckRefuses, ReceivesSwapped) {
  Plan plan = make_plan(gpipe_table(2, 2));
  std::swap(actions(plan, 1)[0], actions(plan, 1)[1]);
  EXPECT_THAT(refusal(plan), StartsWith("rank 1, action 0 (receive for F1): another message comes "
                                        "first, rank 0, action 1 (send of F0)"));
}

TEST(CheckRefuses, SendsSwapped) {
  Plan plan = make_plan(gpipe_table(2, 2));
  std::swap(actions(plan, 0)[1], actions(plan, 0)[4]);
  EXPECT_THAT(refusal(plan), StartsWith("rank 0, action 1 (send of F1): does not follow its entry, "
                                        "rank 0, action 3 (F1)"));
}

TEST(CheckRefuses, ReceiveAfterItsUse) {
  Plan plan = make_plan(gpipe_table(2, 1));
  std::swap(actions(plan, 1)[0], actions(plan, 1)[1]);
  EXPECT_THAT(refusal(plan), StartsWith("rank 1, action 1 (receive for F0): is posted after its "
                                        "use, rank 1, action 0 (F0)"));
}

TEST(CheckRefuses, Deadlock) {
  Schedule schedule = gpipe_table(3, 2);
  // Rank 0 runs F0 B0 F1 B1, but rank 1 begins with F0 F1.
  std::swap(schedule.table[0][1], schedule.table[0][2]);
  const std::string message = refusal(make_plan(schedule));
  EXPECT_THAT(message, HasSubstr("deadlock: "));
  EXPECT_THAT(message, HasSubstr("(B0) waits for rank 1"));
  EXPECT_THAT(message, HasSubstr("(F1) waits for rank 0"));
}

TEST(CheckRefuses, ChunksOfARankInTheWrongOrder) {
  Schedule schedule = empty_table("all here", 1, 1, 2);
  schedule.table[0] = {
      {Kind::forward, 0, 1}, {Kind::forward, 0, 0}, {Kind::backward, 0, 1}, {Kind::backward, 0, 0}};
  EXPECT_THAT(refusal(make_plan(schedule)),
              StartsWith("rank 0, action 0 (F0.1): comes before its input, rank 0, action 1"));
}

TEST(CheckRefuses, GradientsInDescendingOrder) {
  Schedule schedule = gpipe_table(2, 2);
  for (auto& entries : schedule.table) std::swap(entries[2], entries[3]);
  EXPECT_THAT(refusal(make_plan(schedule)),
              HasSubstr("(B0): adds its gradient after that of micro-batch 1"));
}

TEST(CheckRefuses, SlotUsedAgainTooEarly) {
  Plan plan = make_plan(gpipe_table(2, 3));
  for (Action& action : actions(plan, 1)) {
    if (action.entry.micro_batch == 2) action.slot = 1;
  }
  EXPECT_THAT(refusal(plan),
              HasSubstr("(F2): slot 1 still holds the activations of rank 1, action 4 (F1)"));
}

TEST(CheckRefuses, SlotsAndVersionsThatWereNotCounted) {
  for (const Plan& plan : samples()) {
    for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
      for (const int step : {-1, 1}) {
        Plan faulty = plan;
        faulty.ranks[rank].slots += step;
        EXPECT_THAT(refusal(faulty), StartsWith(cat("rank ", rank)));
        faulty = plan;
        faulty.ranks[rank].versions += step;
        EXPECT_THAT(refusal(faulty), StartsWith(cat("rank ", rank)));
      }
    }
  }
}

TEST(CheckRefuses, UpdateLeftOut) {
  Plan plan = make_plan(asynchronous_table(Updates::delayed, 2, 6, 2));
  std::erase_if(actions(plan, 1), [](const Action& action) {
    return action.kind == Action::Kind::update && action.version == 1;
  });
  EXPECT_THAT(refusal(plan),
              HasSubstr("(B2): adds its gradient to the update that makes version 1, "
                        "but the gradient belongs to the update that makes version 2"));
}

TEST(CheckRefuses, UpdateInAFlushedSchedule) {
  Plan plan = make_plan(gpipe_table(2, 2));
  actions(plan, 0).push_back(
      {.kind = Action::Kind::update, .entry = {Kind::backward, 1, 0}, .version = 1});
  EXPECT_THAT(refusal(plan), HasSubstr("(update to version 1): there is no update in this"));
}

// Micro-batch 2 needs the weights after update 0 (version 1), but is computed before that update.
TEST(CheckRefuses, VersionThatDoesNotExistYet) {
  EXPECT_THAT(refusal(make_plan(asynchronous_table(Updates::delayed, 4, 8, 1))),
              HasSubstr("(F2): needs version 1 of the weights, but the newest version is 0"));
}

TEST(CheckRefuses, WeightsOnSeveralRanksWithoutAFlush) {
  Schedule schedule = two_way_table();
  schedule.updates = Updates::latest;
  schedule.accumulated = 2;
  EXPECT_THAT(refusal(make_plan(schedule)), HasSubstr("each updates its weights independently"));
}

TEST(CheckRefuses, ChunksOnDifferentSetsOfRanks) {
  Schedule schedule = empty_table("half two-way", 2, 2, 2);
  using enum Kind;
  schedule.table[0] = {{forward, 0, 0}, {backward, 0, 0}};
  schedule.table[1] = {{forward, 1, 0},  {forward, 0, 1},  {forward, 1, 1},
                       {backward, 0, 1}, {backward, 1, 1}, {backward, 1, 0}};
  EXPECT_THAT(refusal(make_plan(schedule)),
              StartsWith("rank 1: its chunk 1 is on ranks {1}, but its chunk 0 is on ranks {0,1}"));
}

TEST(CheckRefuses, HoldersThatDoNotHold) {
  const Plan plan = make_plan(gpipe_table(2, 2));
  Plan faulty = plan;
  faulty.holders[1] = {0};
  EXPECT_THAT(refusal(faulty), HasSubstr("chunk 1 is computed by ranks {1}"));
  faulty = plan;
  faulty.ranks[1].chunks = {0, 1};
  EXPECT_THAT(refusal(faulty), HasSubstr("rank 1: computes chunks {1}; its plan has {0,1}"));
  faulty = plan;
  faulty.forward_rank[3] = 0;
  EXPECT_THAT(refusal(faulty), HasSubstr("(F1): the plan's forward_rank assigns"));
  faulty = plan;
  faulty.holders.clear();
  faulty.ranks.pop_back();
  EXPECT_THAT(refusal(faulty), HasSubstr("a plan for 1 ranks"));
}

// The plan is correct, but belongs to another table.
TEST(CheckRefuses, PlanOfAnotherTable) {
  Plan plan = make_plan(gpipe_table(2, 4));
  plan.schedule = one_f_one_b_table(2, 4);
  EXPECT_THAT(refusal(plan),
              StartsWith("rank 0, action 4 (F2): the table has B0.0 here, as entry 2"));
}

}  // namespace
}  // namespace tutti::training::pipeline
