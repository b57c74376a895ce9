// Tests which programs terminate if messages are not buffered.
#include "collectives/proof/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/text.h"
#include "collectives/program/algorithm.h"

namespace tutti {
namespace {

std::vector<Plan> plans_of(Collective collective, std::vector<Program> programs, bool in_place) {
  std::vector<Plan> plans;
  const auto ranks = static_cast<int32_t>(programs.size());
  for (int32_t rank = 0; rank < ranks; ++rank) {
    plans.push_back(make_plan(collective, {.ranks = ranks, .rank = rank},
                              std::move(programs[static_cast<size_t>(rank)]), in_place));
  }
  return plans;
}

bool ends(Collective collective, const std::string& name, int ranks, bool in_place) {
  const Algorithm& algorithm = require_algorithm(collective, name);
  return ends_without_buffers(
      plans_of(collective, emit_all(algorithm, {.ranks = ranks}), in_place));
}

TEST(Rendezvous, AnExchangeInPlaceNeedsACopy) {
  std::vector<Program> programs(2);
  for (int32_t rank = 0; rank < 2; ++rank) {
    Program& program = programs[static_cast<size_t>(rank)];
    program.input_chunks = program.output_chunks = 2;
    program.steps = {send({1 - rank}, {input(1 - rank)}), recv(1 - rank, {output(1 - rank)}),
                     copy({input(rank)}, {output(rank)})};
  }
  EXPECT_FALSE(ends_without_buffers(plans_of(Collective::all_to_all, programs, true)));
  EXPECT_TRUE(ends_without_buffers(plans_of(Collective::all_to_all, programs, false)));
}

TEST(Rendezvous, WholeBuffersExchangedInPlaceNeedACopyAndPartsDoNot) {
  EXPECT_FALSE(ends(Collective::all_reduce, "one_shot", 2, true));
  EXPECT_TRUE(ends(Collective::all_reduce, "one_shot", 2, false));
  for (const int ranks : {2, 3, 5, 8}) {
    EXPECT_TRUE(ends(Collective::all_reduce, "two_shot", ranks, true)) << ranks;
    EXPECT_TRUE(ends(Collective::all_gather, "ring", ranks, true)) << ranks;
  }
}

// Returns the algorithms of which, on four ranks, messages must be copied.
std::vector<std::string> that_need_copies(bool in_place) {
  std::vector<std::string> names;
  for (const Algorithm* algorithm : all_algorithms()) {
    const Shape shape{.ranks = 4};
    if (!algorithm->supports(shape).empty()) continue;
    const auto plans = plans_of(algorithm->collective, emit_all(*algorithm, shape), in_place);
    if (!ends_without_buffers(plans)) {
      names.push_back(cat(name(algorithm->collective), ' ', algorithm->name));
    }
  }
  return names;
}

// Out of place, data that is being sent is never overwritten.
TEST(Rendezvous, OutOfPlaceNoAlgorithmNeedsCopies) {
  EXPECT_THAT(that_need_copies(false), ::testing::IsEmpty());
}

TEST(Rendezvous, OnlyTheseAlgorithmsNeedCopiesInPlace) {
  EXPECT_THAT(that_need_copies(true),
              ::testing::UnorderedElementsAre("all_to_all linear", "all_to_all bruck"));
}

}  // namespace
}  // namespace tutti
