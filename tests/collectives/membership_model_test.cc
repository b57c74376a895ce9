// Explores all events that can happen to a few ranks that agree or change members. No two living
// ranks may decide differently. With TUTTI_TEST_FULL, there are more ranks and events, which takes
// long and needs 1 GB of memory.
#include "tests/collectives/membership_model.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <iostream>

namespace tutti::testing {
namespace {

bool full() { return std::getenv("TUTTI_TEST_FULL") != nullptr; }

// Returns one side of each way to cut the ranks in two, namely the side without rank 0, so that no
// cut occurs twice.
std::vector<Ranks> sides(int ranks) {
  std::vector<Ranks> sides;
  for (unsigned side = 2; side < 1U << ranks; side += 2) sides.push_back(static_cast<Ranks>(side));
  return sides;
}

void report(const Checker& checker, const char* what, const Bounds& bounds) {
  std::cout << what << ": " << bounds.ranks << " ranks, "
            << (bounds.change ? "a change of members" : "an agreement") << ", cut off (bits) "
            << int{bounds.side} << ", " << bounds.kills << " killed, " << bounds.retries
            << " retries: " << checker.worlds() << " states, the classes ran " << checker.runs()
            << " times, " << checker.violations() << " violations" << std::endl;
  EXPECT_EQ(checker.violations(), 0U) << checker.story();
}

size_t explore(Bounds bounds, bool halves_only = false) {
  size_t worlds = 0;
  for (const Ranks side : sides(bounds.ranks)) {
    if (halves_only && 2 * std::popcount(side) != bounds.ranks) continue;
    bounds.side = side;
    Checker checker(bounds);
    checker.explore();
    report(checker, "all", bounds);
    worlds += checker.worlds();
  }
  return worlds;
}

size_t walk(Bounds bounds, int walks) {
  size_t worlds = 0;
  for (const Ranks side : sides(bounds.ranks)) {
    bounds.side = side;
    Checker checker(bounds);
    for (int seed = 0; seed < walks; ++seed) checker.walk(static_cast<uint32_t>(seed));
    report(checker, "random paths", bounds);
    worlds += checker.worlds();
  }
  return worlds;
}

TEST(Membership, ThreeRanksAgree) {
  const size_t states =
      explore({.ranks = 3, .kills = 2, .rumours = true, .retries = full() ? 2 : 1});
  std::cout << states << " states in all\n";
}

TEST(Membership, FourRanksAgree) {
  Bounds bounds{.ranks = 4, .kills = 1, .rumours = true, .at_once = true};
  size_t states = explore(bounds);
  if (full()) {
    bounds.kills = 3;
    bounds.retries = 1;
    states += explore(bounds);
    states += explore({.ranks = 4, .kills = 1, .rumours = true});
  } else {
    bounds.kills = 2;
    states += explore(bounds, true);
    states += walk({.ranks = 4, .kills = 3, .rumours = true, .retries = 1}, 1000);
  }
  std::cout << states << " states in all\n";
}

TEST(Membership, FiveRanksAgree) {
  size_t states =
      walk({.ranks = 5, .kills = 4, .rumours = true, .retries = 1}, full() ? 50000 : 2000);
  if (full()) states += explore({.ranks = 5, .kills = 2, .rumours = true, .at_once = true});
  std::cout << states << " states in all\n";
}

TEST(Membership, RanksChangeMembers) {
  Bounds bounds{.ranks = 3, .change = true, .kills = 1, .rumours = true, .at_once = true};
  if (full()) bounds.retries = 1;
  size_t states = explore(bounds);
  for (int ranks = 3; ranks <= kMostRanks; ++ranks) {
    states +=
        walk({.ranks = ranks, .change = true, .kills = ranks - 1, .rumours = true, .retries = 2},
             full() ? 20000 : 1500);
  }
  std::cout << states << " states in all\n";
}

// shrink() once had this defect, which the checker must find: a rank whose second agreement failed
// repeated the first question, and the others treated its answer as an answer to the second
// question.
TEST(Membership, FindsThatARestartedRankIsOutOfPhase) {
  Checker checker({.ranks = 3, .change = true, .retries = 1, .restarts = true});
  for (uint32_t seed = 0; seed < 1000 && checker.violations() == 0; ++seed) checker.walk(seed);
  EXPECT_NE(checker.story().find("different questions in agreement 2"), std::string::npos)
      << checker.story();
}

}  // namespace
}  // namespace tutti::testing
