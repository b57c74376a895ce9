// Tests programs with steps that divide (means) or scale inputs, and the proofs of these programs.
#include "collectives/program/arithmetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "collectives/program/algorithm.h"
#include "collectives/proof/verify.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(WithArithmetic, EveryAlgorithmIsRightAndKeepsItsGrade) {
  int proved = 0;
  for (const Collective collective : kCollectivesWithAlgorithms) {
    if (!reduces(collective)) continue;
    for (const Algorithm* algorithm : algorithms_for(collective)) {
      for (int ranks = 1; ranks <= 16; ++ranks) {
        for (int root = 0; root < (has_root(collective) ? ranks : 1); ++root) {
          const Shape shape{.ranks = ranks, .root = root};
          if (!algorithm->supports(shape).empty()) continue;
          const Verdict plain = verify(*algorithm, shape);
          for (const Arithmetic arithmetic : {Arithmetic::means, Arithmetic::scaled}) {
            const Verdict verdict = verify(*algorithm, shape, arithmetic);
            EXPECT_EQ(verdict.problem, "") << algorithm->name << " on " << ranks << " ranks";
            // On a few ranks, plain sums may have a higher grade than declared. Means need not have
            // this grade, because sums are rounded before the division.
            EXPECT_GE(verdict.grade, std::min(plain.grade, grade_of(*algorithm, shape)))
                << algorithm->name << " on " << ranks << " ranks";
            ++proved;
          }
        }
      }
    }
  }
  EXPECT_GT(proved, 500);
}

Program with(std::vector<Step> steps) { return {.scratch_chunks = 1, .steps = std::move(steps)}; }

// Two ranks exchange their inputs, and each reduces them.
std::vector<Program> exchange() {
  return {with({send({1}, {input(0)}), recv_reduce_right(1, {input(0)}, {output(0)})}),
          with({send({0}, {input(0)}), recv_reduce_left(0, {input(0)}, {output(0)})})};
}

// Rank 0 reduces into `sum` and sends the result to rank 1.
std::vector<Program> reduce_and_send(ChunkRange sum, Wire wire = Wire::element) {
  std::vector<Program> programs = {
      with({recv_reduce_right(1, {input(0)}, {sum}), send({1}, {sum}, wire)}),
      with({send({0}, {input(0)}), recv(0, {output(0)}, wire)})};
  if (sum.space != Space::output) programs[0].steps.push_back(copy({sum}, {output(0)}));
  return programs;
}

std::vector<Program> added(std::vector<Program> programs, Arithmetic arithmetic,
                           Means means = Means::shared,
                           Collective collective = Collective::all_reduce) {
  Shape shape{.ranks = static_cast<int32_t>(programs.size())};
  for (Program& program : programs) {
    program = with_arithmetic(arithmetic, means, collective, shape, program);
    ++shape.rank;
  }
  return programs;
}

std::string problem_of(std::vector<Program> programs, Arithmetic arithmetic,
                       Collective collective = Collective::all_reduce) {
  return verify(collective, std::move(programs), {.arithmetic = arithmetic}).problem;
}

std::vector<std::string> steps_of(const Program& program) {
  std::vector<std::string> steps;
  for (const Step& step : program.steps) steps.push_back(to_string(step));
  return steps;
}

TEST(WithArithmetic, UnrequestedOrMissingArithmeticIsRefused) {
  for (const Arithmetic arithmetic : {Arithmetic::none, Arithmetic::means, Arithmetic::scaled}) {
    EXPECT_EQ(problem_of(added(exchange(), arithmetic), arithmetic), "");
  }
  EXPECT_THAT(problem_of(exchange(), Arithmetic::means), HasSubstr("is not divided"));
  EXPECT_THAT(problem_of(exchange(), Arithmetic::scaled), HasSubstr("not scaled yet"));
  EXPECT_THAT(problem_of(added(exchange(), Arithmetic::means), Arithmetic::none),
              HasSubstr("computes no mean"));
  EXPECT_THAT(problem_of(added(exchange(), Arithmetic::scaled), Arithmetic::none),
              HasSubstr("must not be scaled"));
}

TEST(WithArithmetic, ArithmeticMissingOnOneRankOrInOneStepIsRefused) {
  for (size_t rank = 0; rank < 2; ++rank) {
    for (size_t step = 0; step < 2; ++step) {
      std::vector<Program> programs = added(exchange(), Arithmetic::scaled);
      programs[rank].steps[step].scales = false;
      EXPECT_THAT(problem_of(programs, Arithmetic::scaled), HasSubstr("not scaled yet"));
    }
    std::vector<Program> programs = added(exchange(), Arithmetic::means);
    programs[rank].steps[1].divides = false;
    EXPECT_THAT(problem_of(programs, Arithmetic::means), HasSubstr("is not divided"));
  }
}

TEST(WithArithmetic, ArithmeticTwiceOrTooEarlyIsRefused) {
  std::vector<Program> twice = added(exchange(), Arithmetic::means);
  twice[1].steps.push_back(copy({output(0)}, {output(0)}));
  twice[1].steps.back().divides = true;
  EXPECT_THAT(problem_of(twice, Arithmetic::means), HasSubstr("divided already"));

  std::vector<Program> passed_on = added(reduce_and_send(output(0)), Arithmetic::means);
  EXPECT_EQ(problem_of(passed_on, Arithmetic::means), "");
  passed_on[1].steps[1].divides = true;
  EXPECT_THAT(problem_of(passed_on, Arithmetic::means), HasSubstr("divided already"));

  // Rank 1 divides its own input before it adds the input of rank 0.
  std::vector<Program> early = added(exchange(), Arithmetic::means);
  early[1].steps = {send({0}, {input(0)}), copy({input(0)}, {output(0)}),
                    recv_reduce_left(0, {output(0)}, {output(0)})};
  early[1].steps[1].divides = true;
  EXPECT_THAT(problem_of(early, Arithmetic::means),
              HasSubstr("combines a value that is divided already"));

  // Rank 1 scales in place, and then reads and scales its input again.
  std::vector<Program> again = added(exchange(), Arithmetic::scaled);
  again[1].steps = {copy({input(0)}, {output(0)}), send({0}, {input(0)}),
                    recv_reduce_left(0, {output(0)}, {output(0)})};
  again[1].steps[0].scales = again[1].steps[1].scales = true;
  EXPECT_THAT(problem_of(again, Arithmetic::scaled),
              HasSubstr("scales data that must not be scaled"));
}

TEST(WithArithmetic, StepsThatCannotComputeItAreRefused) {
  std::vector<Program> programs = exchange();
  programs[0].steps[0].divides = true;
  EXPECT_THAT(problem_of(programs, Arithmetic::none),
              HasSubstr("divides a value that is not a result"));
  programs = reduce_and_send(scratch(0));
  programs[0].steps[0].divides = true;
  EXPECT_THAT(problem_of(programs, Arithmetic::none), HasSubstr("computes no mean"));
  programs = reduce_and_send(output(0));
  programs[0].steps[1].scales = true;
  EXPECT_THAT(problem_of(programs, Arithmetic::none), HasSubstr("scales, but reads no input"));
  programs = {with({copy({input(0)}, {output(0)})})};
  programs[0].steps[0].divides = true;
  EXPECT_THAT(problem_of(programs, Arithmetic::none, Collective::broadcast),
              HasSubstr("divides a value that is not a result"));
}

TEST(Means, TheRankThatCompletesASumDividesIt) {
  const std::vector<Program> programs = added(reduce_and_send(output(0)), Arithmetic::means);
  EXPECT_THAT(
      steps_of(programs[0]),
      ElementsAre("recv from 1, output[0] = input[0] op received, divided", "send output[0] to 1"));
  EXPECT_THAT(steps_of(programs[1]), ElementsAre("send input[0] to 0", "recv output[0] from 0"));
}

TEST(Means, TheReceiverOfAccumulatorsDivides) {
  const std::vector<Program> programs =
      added(reduce_and_send(scratch(0), Wire::accumulator), Arithmetic::means);
  EXPECT_EQ(problem_of(programs, Arithmetic::means), "");
  EXPECT_TRUE(programs[0].steps[2].divides);
  EXPECT_TRUE(programs[1].steps[1].divides);
}

// Elements that are received into scratch would have to be divided already, and such programs are
// refused. Instead, each rank divides its own result.
TEST(Means, EachRankDividesResultsThatPassThroughScratch) {
  const std::vector<Program> programs = reduce_and_send(scratch(0));
  EXPECT_THAT(problem_of(added(programs, Arithmetic::means), Arithmetic::means),
              HasSubstr("is not divided"));
  const std::vector<Program> own = added(programs, Arithmetic::means, Means::own);
  EXPECT_EQ(problem_of(own, Arithmetic::means), "");
  EXPECT_TRUE(own[1].steps[1].divides);
}

TEST(Means, ElementsThatAreReadLaterAreDividedAtTheEnd) {
  const std::vector<Program> own = added(reduce_and_send(output(0)), Arithmetic::means, Means::own);
  EXPECT_EQ(problem_of(own, Arithmetic::means), "");
  EXPECT_THAT(steps_of(own[0]),
              ElementsAre("recv from 1, output[0] = input[0] op received", "send output[0] to 1",
                          "copy output[0] to output[0], divided"));
  // There is one copy step for all chunks that the same step has written last.
  Program program{.input_chunks = 4, .output_chunks = 4};
  program.steps = {recv(1, {output(0, 3)}), recv(2, {output(3)}), recv(2, {output(1)})};
  const Program means =
      with_arithmetic(Arithmetic::means, Means::own, Collective::all_reduce, {.ranks = 3}, program);
  EXPECT_THAT(steps_of(means),
              ElementsAre("recv output[0-2] from 1", "recv output[3] from 2, divided",
                          "recv output[1] from 2, divided",
                          "copy output[0]+output[2] to output[0]+output[2], divided"));
}

// In a scan, the means differ between ranks, so that no rank can send a divided result to another.
TEST(Means, OnlyAllReduceSharesMeans) {
  const std::vector<Program> chain = {
      with({send({1}, {input(0)}), copy({input(0)}, {output(0)})}),
      with({recv_reduce_left(0, {input(0)}, {output(0)}), send({2}, {output(0)})}),
      with({recv_reduce_left(1, {input(0)}, {output(0)})})};
  const std::vector<Program> means =
      added(chain, Arithmetic::means, Means::shared, Collective::scan);
  EXPECT_EQ(problem_of(means, Arithmetic::means, Collective::scan), "");
  EXPECT_EQ(means[1].steps.size(), 3U);
  EXPECT_EQ(means[2].steps.size(), 1U);
}

TEST(ScaledInputs, EveryStepThatReadsThemScalesThem) {
  const std::vector<Program> programs = added(exchange(), Arithmetic::scaled);
  EXPECT_THAT(steps_of(programs[0]),
              ElementsAre("send input[0] to 1, scaled",
                          "recv from 1, output[0] = input[0] op received, scaled"));
}

// Input 0 has been scaled into its place in the output. In place, input and output are the same
// memory, so later steps must read the output.
TEST(ScaledInputs, StepsReadScaledInputsFromTheOutput) {
  const auto rank = [](int32_t peer) {
    return Program{.input_chunks = 2,
                   .output_chunks = 2,
                   .chunks_per_message = 2,
                   .steps = {copy({input(0)}, {output(0)}), send({peer}, {input(0, 2)}),
                             peer == 1 ? recv_reduce_right(peer, {input(0, 2)}, {output(0, 2)})
                                       : recv_reduce_left(peer, {input(0, 2)}, {output(0, 2)})}};
  };
  const std::vector<Program> programs = {rank(1), rank(0)};
  EXPECT_EQ(problem_of(programs, Arithmetic::none), "");
  const std::vector<Program> scaled = added(programs, Arithmetic::scaled);
  EXPECT_EQ(problem_of(scaled, Arithmetic::scaled), "");
  EXPECT_EQ(to_string(scaled[0].steps[1]), "send output[0]+input[1] to 1, scaled");
}

}  // namespace
}  // namespace tutti
