// Means and scaled inputs are steps of the programs, and proved with them.
#include "collectives/program/arithmetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "collectives/program/algorithm.h"
#include "collectives/proof/verify.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

TEST(WithArithmetic, EveryAlgorithmIsRightAndKeepsItsGrade) {
  int proved = 0;
  for (const Collective collective : kCollectivesWithAlgorithms) {
    if (!reduces(collective)) continue;
    for (const Algorithm* algorithm : algorithms_for(collective)) {
      for (const int ranks : {1, 2, 3, 4, 5, 7, 8, 12, 16}) {
        for (int root = 0; root < (has_root(collective) ? ranks : 1); ++root) {
          const Shape shape{.ranks = ranks, .root = root};
          if (!algorithm->supports(shape).empty()) continue;
          const Verdict plain = verify(*algorithm, shape);
          for (const Arithmetic arithmetic : {Arithmetic::means, Arithmetic::scaled}) {
            const Verdict verdict = verify(*algorithm, shape, arithmetic);
            EXPECT_EQ(verdict.problem, "") << algorithm->name << " on " << ranks << " ranks";
            EXPECT_EQ(verdict.grade, plain.grade) << algorithm->name << " on " << ranks << " ranks";
            ++proved;
          }
        }
      }
    }
  }
  EXPECT_GT(proved, 500);
}

// Two ranks swap their inputs and reduce.
std::vector<Program> exchange() {
  const auto with = [](std::vector<Step> steps) { return Program{.steps = std::move(steps)}; };
  return {with({send({1}, {input(0)}), recv_reduce_right(1, {input(0)}, {output(0)})}),
          with({send({0}, {input(0)}), recv_reduce_left(0, {input(0)}, {output(0)})})};
}

std::vector<Program> exchange_with(Arithmetic arithmetic) {
  std::vector<Program> programs = exchange();
  for (int32_t rank = 0; rank < 2; ++rank) {
    programs[rank] = with_arithmetic(arithmetic, Collective::all_reduce, {.ranks = 2, .rank = rank},
                                     programs[rank]);
  }
  return programs;
}

std::string problem_of(std::vector<Program> programs, Arithmetic arithmetic) {
  return verify(Collective::all_reduce, std::move(programs), {.arithmetic = arithmetic}).problem;
}

TEST(WithArithmetic, IsRefusedWhereItIsNotAskedForOrMissing) {
  for (const Arithmetic arithmetic : {Arithmetic::none, Arithmetic::means, Arithmetic::scaled}) {
    EXPECT_EQ(problem_of(exchange_with(arithmetic), arithmetic), "");
  }
  EXPECT_THAT(problem_of(exchange(), Arithmetic::means), HasSubstr("is not divided"));
  EXPECT_THAT(problem_of(exchange(), Arithmetic::scaled), HasSubstr("not scaled yet"));
  EXPECT_THAT(problem_of(exchange_with(Arithmetic::means), Arithmetic::none),
              HasSubstr("nobody asked for"));
  EXPECT_THAT(problem_of(exchange_with(Arithmetic::scaled), Arithmetic::none),
              HasSubstr("not to be scaled"));
}

TEST(WithArithmetic, IsRefusedWhereItComesTwiceOrTooEarly) {
  std::vector<Program> twice = exchange_with(Arithmetic::means);
  twice[1].steps.push_back(divide({output(0)}));
  EXPECT_THAT(problem_of(twice, Arithmetic::means), HasSubstr("divided already"));

  // Rank 1 divides its part before the other's is added.
  std::vector<Program> early = exchange();
  early[0] =
      with_arithmetic(Arithmetic::means, Collective::all_reduce, {.ranks = 2, .rank = 0}, early[0]);
  early[1].steps = {send({0}, {input(0)}), copy({input(0)}, {output(0)}), divide({output(0)}),
                    recv_reduce_left(0, {output(0)}, {output(0)})};
  EXPECT_THAT(problem_of(early, Arithmetic::means), HasSubstr("combines what is divided already"));
}

TEST(WithArithmetic, PutsOneStepForEachPart) {
  Program program{.input_chunks = 4, .output_chunks = 4};
  program.steps = {recv(1, {output(0, 2)}), recv(1, {output(2)}), recv(2, {output(3)}),
                   recv(2, {output(2)})};
  const Program means =
      with_arithmetic(Arithmetic::means, Collective::all_reduce, {.ranks = 3}, program);
  ASSERT_EQ(means.steps.size(), 7U);
  EXPECT_EQ(to_string(means.steps[4]), to_string(divide({output(0, 2)})));
  EXPECT_EQ(to_string(means.steps[5]), to_string(divide({output(3)})));
  EXPECT_EQ(to_string(means.steps[6]), to_string(divide({output(2)})));
}

}  // namespace
}  // namespace tutti
