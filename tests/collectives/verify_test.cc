// Tests that defective programs of every kind are refused, with the place of the defect, and that
// correct programs get their grade.
#include "collectives/proof/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Programs = std::vector<Program>;

Program with(std::vector<Step> steps, int32_t chunks = 1, int32_t scratch_chunks = 0) {
  return {.input_chunks = chunks,
          .output_chunks = chunks,
          .scratch_chunks = scratch_chunks,
          .steps = std::move(steps)};
}

void expect_refused(const Verdict& verdict, const ::testing::Matcher<std::string>& problem) {
  EXPECT_EQ(verdict.grade, Grade::wrong);
  EXPECT_THAT(verdict.problem, problem);
}

// Two ranks exchange their inputs, and each reduces them with the input of the lower rank on the
// left.
Programs exchange() {
  return {with({send({1}, {input(0)}), recv_reduce_right(1, {input(0)}, {output(0)})}),
          with({send({0}, {input(0)}), recv_reduce_left(0, {input(0)}, {output(0)})})};
}

Verdict verify_all_reduce(const Programs& programs) {
  return verify(Collective::all_reduce, programs);
}

TEST(Grades, AnExchangeIsCanonical) {
  const Verdict verdict = verify_all_reduce(exchange());
  EXPECT_EQ(verdict.problem, "");
  EXPECT_EQ(verdict.grade, Grade::canonical);
}

TEST(Grades, TheSameWrongOrderEverywhereIsSameBits) {
  Programs programs = exchange();
  programs[0].steps[1].received_on_left = true;
  programs[1].steps[1].received_on_left = false;
  EXPECT_EQ(verify_all_reduce(programs).grade, Grade::same_bits);
}

TEST(Grades, AnOrderThatDependsOnTheRankIsOnlyCorrect) {
  Programs programs;
  for (int32_t rank = 0; rank < 3; ++rank) {  // each rank computes (own op next) op previous
    const int32_t next = (rank + 1) % 3;
    const int32_t previous = (rank + 2) % 3;
    programs.push_back(
        with({send({next, previous}, {input(0)}), recv_reduce_right(next, {input(0)}, {output(0)}),
              recv_reduce_right(previous, {output(0)}, {output(0)})}));
    programs.back().fan_out = 2;
  }
  const Verdict verdict = verify_all_reduce(programs);
  EXPECT_EQ(verdict.problem, "");
  EXPECT_EQ(verdict.grade, Grade::correct);
}

// Returns programs of three ranks: rank 1 adds its input to that of rank 0, rank 2 adds its input
// to this sum, and all ranks get the result.
Programs chain(ChunkRange partial) {
  Programs programs = {with({send({1}, {input(0)}), recv(2, {output(0)})}, 1, 1),
                       with({recv_reduce_left(0, {input(0)}, {partial}),
                             send({2}, {partial}, unrounded(partial)), recv(2, {output(0)})},
                            1, 1),
                       with({recv_reduce_left(1, {input(0)}, {output(0)}, unrounded(partial)),
                             send({0, 1}, {output(0)})},
                            1, 1)};
  for (Program& program : programs) program.fan_out = 2;
  return programs;
}

TEST(Grades, RoundingOnTheWayIsNotCanonical) {
  EXPECT_EQ(verify_all_reduce(chain(scratch(0))).grade, Grade::canonical);
  EXPECT_EQ(verify_all_reduce(chain(output(0))).grade, Grade::same_bits);
  Programs programs = chain(scratch(0));
  programs[1].steps[1].wire = programs[2].steps[0].wire = Wire::element;
  EXPECT_EQ(verify_all_reduce(programs).grade, Grade::same_bits);
}

// One rank keeps the unrounded sum, and the other receives it rounded, so that their bits differ.
TEST(Grades, ARoundedAndAnUnroundedPartialAreNotTheSame) {
  Programs programs = chain(scratch(0));
  programs[0] = with({send({1}, {input(0)}), recv(2, {scratch(0)}), recv(1, {scratch(1)}),
                      reduce({scratch(1)}, {scratch(0)}, {output(0)})},
                     1, 2);
  programs[1] = with({recv_reduce_left(0, {input(0)}, {scratch(0)}), send({0, 2}, {scratch(0)}),
                      recv(2, {scratch(1)}), reduce({scratch(0)}, {scratch(1)}, {output(0)})},
                     1, 2);
  programs[2] =
      with({send({0, 1}, {input(0)}), recv_reduce_left(1, {input(0)}, {output(0)})}, 1, 2);
  for (Program& program : programs) program.fan_out = 2;
  const Verdict verdict = verify_all_reduce(programs);
  EXPECT_EQ(verdict.problem, "");
  EXPECT_EQ(verdict.grade, Grade::correct);
}

TEST(Wires, BothEndsMustAgree) {
  Programs programs = chain(scratch(0));
  programs[1].steps[1].wire = Wire::element;
  expect_refused(verify_all_reduce(programs),
                 AllOf(StartsWith("rank 2, step 0 (recv unrounded from 1"),
                       HasSubstr("the other end as elements")));
}

TEST(Wires, CarryAccumulatorsWhereThereAreAny) {
  const Programs programs = {with({send({1}, {input(0)}, Wire::accumulator)}),
                             with({recv(0, {output(0)}, Wire::accumulator)})};
  expect_refused(verify(Collective::broadcast, programs),
                 HasSubstr("carries accumulators, but the programs have none"));
}

TEST(Scans, EndAtTheOwnRank) {
  const Programs scan = {with({send({1}, {input(0)}), copy({input(0)}, {output(0)})}),
                         with({recv_reduce_left(0, {input(0)}, {output(0)})})};
  EXPECT_EQ(verify(Collective::scan, scan).grade, Grade::canonical);
  expect_refused(verify(Collective::exscan, scan),
                 "rank 0, step 1 (copy input[0] to output[0]): output[0]: surplus contribution: "
                 "rank 0 of an exscan has no result");
  Programs exscan = {with({send({1}, {input(0)})}), with({recv(0, {output(0)})})};
  EXPECT_EQ(verify(Collective::exscan, exscan).grade, Grade::canonical);
  expect_refused(
      verify(Collective::scan, Programs{scan[0], exscan[1]}),
      "rank 1, step 0 (recv output[0] from 0): output[0]: missing contribution: it lacks "
      "input of rank 1");
  exscan[1] = scan[1];
  expect_refused(verify(Collective::exscan, exscan),
                 HasSubstr("surplus contribution: input of rank 1"));
}

TEST(Direct, ForwardsNothing) {
  const auto program = [](int32_t rank) {
    return Program{
        .input_chunks = 2,
        .output_chunks = 2,
        .steps = {send({1 - rank}, {input(1 - rank)}), copy({input(rank)}, {output(rank)}),
                  recv(1 - rank, {output(1 - rank)})}};
  };
  Programs programs = {program(0), program(1)};
  EXPECT_EQ(verify(Collective::all_to_all, programs, {.direct = true}).problem, "");
  for (Program& p : programs) {
    p.scratch_chunks = 1;
    p.steps.insert(p.steps.begin(), copy(p.steps[0].src, {scratch(0)}));
    p.steps[1].src = {scratch(0)};
  }
  EXPECT_EQ(verify(Collective::all_to_all, programs).problem, "");
  expect_refused(
      verify(Collective::all_to_all, programs, {.direct = true}),
      "rank 0, step 0 (copy input[1] to scratch[0]): declared direct, but forwards received data");
}

// Blocks may be uneven. A step that moves data between chunks of different blocks is therefore
// refused.
TEST(Sizes, DifferentBlocksDoNotMatch) {
  const auto program = [](int32_t own, int32_t other) {
    return Program{.input_chunks = 1,
                   .output_chunks = 2,
                   .scratch_chunks = 2,
                   .steps = {send({other}, {input(0)}), copy({input(0)}, {output(own)}),
                             recv(other, {scratch(own)}), copy({scratch(own)}, {output(other)})}};
  };
  expect_refused(verify(Collective::all_gather, Programs{program(0, 1), program(1, 0)}),
                 HasSubstr("sizes do not match: chunks of different size classes meet"));
}

TEST(Progress, EveryRankReceivesFirst) {
  const Programs programs = {
      with({recv_reduce_right(1, {input(0)}, {output(0)}), send({1}, {output(0)})}),
      with({recv_reduce_left(0, {input(0)}, {output(0)}), send({0}, {output(0)})})};
  expect_refused(verify_all_reduce(programs),
                 AllOf(StartsWith("no progress: rank 0, step 0 (recv from 1, output[0] = input[0] "
                                  "op received) waits for a message from rank 1"),
                       HasSubstr("rank 1, step 0 (")));
}

// Rank 1 receives the first message after rank 2 has sent; rank 2 sends after it has received rank
// 0's second message, which is also for rank 1: the connection from 0 to 1 would need room for two.
TEST(Progress, AConnectionHoldsOneMessage) {
  Programs programs = {
      with({send({1}, {input(0)}), send({1, 2}, {input(0)}), copy({input(0)}, {output(0)})}, 1, 2),
      with({recv(2, {scratch(0)}), recv_reduce_left(0, {scratch(0)}, {output(0)}),
            recv(0, {scratch(1)})},
           1, 2),
      with({recv(0, {scratch(0)}), send({1}, {scratch(0)}), copy({input(0)}, {output(0)})}, 1, 2)};
  for (Program& program : programs) program.fan_out = 2;
  expect_refused(verify_all_reduce(programs),
                 AllOf(HasSubstr("no progress"),
                       HasSubstr("rank 0, step 1 (send input[0] to 1, 2) waits for rank 1 to "
                                 "receive the previous message"),
                       HasSubstr("rank 1, step 0 (recv scratch[0] from 2) waits for a message "
                                 "from rank 2")));
}

TEST(Messages, SentButNeverReceivedIsRefused) {
  Programs programs = exchange();
  programs[1].steps.push_back(send({0}, {input(0)}));
  expect_refused(verify_all_reduce(programs),
                 "rank 1, step 2 (send input[0] to 0): unmatched message: rank 0 never receives "
                 "it");
}

TEST(Messages, ReceivedButNeverSentIsRefused) {
  Programs programs = exchange();
  programs[1].steps.erase(programs[1].steps.begin());
  expect_refused(verify_all_reduce(programs),
                 "rank 0, step 1 (recv from 1, output[0] = input[0] op received): unmatched "
                 "message: rank 1 never sends it");
}

TEST(Contributions, CountedTwice) {
  Programs programs = exchange();
  programs[1].steps.push_back(send({0}, {input(0)}));
  programs[0].steps.push_back(recv_reduce_right(1, {output(0)}, {output(0)}));
  expect_refused(verify_all_reduce(programs),
                 AllOf(StartsWith("rank 0, step 2 (recv from 1, "),
                       HasSubstr("double count: input of rank 1 is on both sides")));
}

TEST(Contributions, Missing) {
  Programs programs = exchange();
  programs[0].steps[1] = recv(1, {output(0)});
  expect_refused(verify_all_reduce(programs),
                 "rank 0, step 1 (recv output[0] from 1): output[0]: missing contribution: it "
                 "lacks input of rank 0");
}

TEST(Contributions, MissingChunk) {
  Programs programs = exchange();
  for (Program& program : programs) program.input_chunks = program.output_chunks = 2;
  expect_refused(verify_all_reduce(programs),
                 "rank 0: output[1]: missing contribution: it is never written");
}

TEST(Contributions, AnotherChunkIsRefused) {
  const auto program = [](Step step, Step send_step) {
    return Program{.input_chunks = 2, .output_chunks = 1, .steps = {send_step, step}};
  };
  const Programs programs = {
      program(recv_reduce_right(1, {input(0)}, {output(0)}), send({1}, {input(1)})),
      program(recv_reduce_left(0, {input(1)}, {output(0)}), send({0}, {input(1)}))};
  expect_refused(verify(Collective::reduce_scatter, programs),
                 AllOf(StartsWith("rank 0, step 1 (recv from 1"),
                       HasSubstr("chunks of different size classes meet")));
}

TEST(Contributions, AnotherRankIsRefused) {
  const auto program = [](int32_t own, int32_t other) {
    return Program{.input_chunks = 2,
                   .output_chunks = 2,
                   .steps = {send({other}, {input(own)}), copy({input(own)}, {output(own)}),
                             recv(other, {output(other)})}};
  };
  expect_refused(verify(Collective::all_to_all, Programs{program(0, 1), program(1, 0)}),
                 HasSubstr("output[1]: wrong chunk: it ends up with input chunk 1, not 0"));
}

TEST(Contributions, ABroadcastOfSomeoneElse) {
  Program root = with({recv(1, {output(0)})});
  Program other = with({copy({input(0)}, {output(0)}), send({0}, {input(0)})});
  expect_refused(verify(Collective::broadcast, Programs{root, other}),
                 AllOf(StartsWith("rank 1, step 0 (copy input[0] to output[0])"),
                       HasSubstr("this rank has 0 chunks there")));
}

TEST(Contributions, ABarrierThatReceivesFromOneNeighbourOnly) {
  Programs programs;
  for (int32_t rank = 0; rank < 3; ++rank) {
    // The second token proves no more than the first one, because it is sent before the receives.
    const int32_t next = (rank + 1) % 3;
    const int32_t previous = (rank + 2) % 3;
    programs.push_back(
        with({send({next}, {}), send({next}, {}), recv(previous, {}), recv(previous, {})}, 0));
  }
  expect_refused(verify(Collective::barrier, programs),
                 "rank 0: missing contribution: it leaves the barrier without knowing that rank 1 "
                 "has entered");
  for (Program& program : programs) std::swap(program.steps[1], program.steps[2]);
  EXPECT_EQ(verify(Collective::barrier, programs).problem, "");
}

TEST(Reads, BeforeAnyWrite) {
  Programs programs = exchange();
  for (Program& program : programs) program.scratch_chunks = 4;
  programs[1].steps[0] = send({0}, {scratch(3)});
  expect_refused(
      verify_all_reduce(programs),
      "rank 1, step 0 (send scratch[3] to 0): read before write: scratch[3] is not written yet");
}

// In place, the output initially contains the input. But a program must also work out of place.
TEST(Reads, OutputIsNotReadBeforeItIsWritten) {
  Programs programs = exchange();
  programs[0].steps[0] = send({1}, {output(0)});
  expect_refused(verify_all_reduce(programs),
                 HasSubstr("rank 0, step 0 (send output[0] to 1): read before write"));
}

// Out of place, the receive and the send are independent. In place, the receive overwrites what the
// send reads, so that on both ranks the receive waits for the send.
TEST(InPlace, DependenciesAreKept) {
  const auto rank = [](int32_t own, int32_t other) {
    return Program{.input_chunks = 2,
                   .output_chunks = 2,
                   .steps = {recv(other, {output(other)}), send({other}, {input(other)}),
                             copy({input(own)}, {output(own)})}};
  };
  expect_refused(verify(Collective::all_to_all, Programs{rank(0, 1), rank(1, 0)}),
                 StartsWith("no progress: rank 0, step 0 (recv output[1] from 1) waits for a "
                            "message from rank 1"));
}

// Out of place, the sum may be computed twice. In place, the second sum would add to the first one.
TEST(InPlace, InputThatWasOverwritten) {
  const Step sum = reduce({input(0)}, {scratch(0)}, {output(0)});
  Programs programs = {
      with({send({1}, {input(0)}), recv(1, {scratch(0)}), sum}, 1, 1),
      with({send({0}, {input(0)}), recv_reduce_left(0, {input(0)}, {output(0)})}, 1, 1)};
  EXPECT_EQ(verify_all_reduce(programs).problem, "");
  programs[0].steps.push_back(sum);
  expect_refused(verify_all_reduce(programs),
                 "rank 0, step 3 (reduce output[0] = input[0] op scratch[0]): double count: input "
                 "of rank 1 is on both sides");
}

TEST(Sizes, WithinAStep) {
  const Program program = with({copy({input(0, 2)}, {output(0)})}, 2);
  expect_refused(verify_all_reduce({program}),
                 "rank 0, step 0 (copy input[0-1] to output[0]): sizes do not match: 2 chunks meet "
                 "1");
}

TEST(Sizes, MessagesHaveTheReceiversSize) {
  Programs programs = exchange();
  for (Program& program : programs) {
    program.input_chunks = program.output_chunks = program.chunks_per_message = 2;
  }
  programs[0].steps[0] = send({1}, {input(0, 2)});
  expect_refused(verify_all_reduce(programs),
                 AllOf(StartsWith("rank 1, step 1 (recv from 0"),
                       HasSubstr("sizes do not match: 2 chunks meet 1"),
                       HasSubstr("from rank 0, step 0 (send input[0-1] to 1)")));
}

TEST(Sizes, ChunksAtDifferentPlacesDoNotMatch) {
  const Program program = with({copy({input(0)}, {output(1)}), copy({input(1)}, {output(0)})}, 2);
  expect_refused(verify_all_reduce({program}),
                 HasSubstr("sizes do not match: chunks of different size classes meet"));
}

TEST(Sizes, BeyondTheBuffers) {
  expect_refused(verify_all_reduce({with({copy({input(1)}, {output(0)})})}),
                 HasSubstr("range out of bounds: this rank has 1 chunks there"));
  expect_refused(verify_all_reduce({with({copy({input(0, 0)}, {output(0)})})}),
                 HasSubstr("range out of bounds"));
  expect_refused(verify_all_reduce({with({copy({input(0)}, {scratch(0)})})}),
                 HasSubstr("range out of bounds: this rank has 0 chunks there"));
}

TEST(Sizes, ProgramsHaveTheCollectivesSize) {
  Program program = with({copy({input(0)}, {output(0)})}, 1);
  program.output_chunks = 2;
  expect_refused(verify_all_reduce({program}),
                 "sizes do not match: 1 input and 2 output chunks for a all_reduce of 1 ranks");
}

TEST(Steps, NameTheirPeers) {
  for (const auto& [peers, problem] : std::vector<std::pair<std::vector<int32_t>, std::string>>{
           {{2}, "rank 2 is not one of the 2"},
           {{-1}, "rank -1 is not one of the 2"},
           {{0}, "names its own rank"},
           {{1, 1}, "names a rank twice"},
           {{}, "names no peer"}}) {
    Programs programs = exchange();
    programs[0].steps[0].peers = peers;
    expect_refused(verify_all_reduce(programs),
                   AllOf(StartsWith("rank 0, step 0 (send"), HasSubstr(problem)));
  }
}

TEST(Steps, WriteWhereTheyMay) {
  expect_refused(verify_all_reduce({with({copy({input(0)}, {input(0)})})}),
                 HasSubstr("writes to the input"));
  expect_refused(verify_all_reduce({with({copy({input(0), input(0)}, {output(0), output(0)})})}),
                 HasSubstr("writes a chunk twice"));
  // In place, input[0] and output[0] are the same memory, so that the order of the two copies would
  // matter.
  expect_refused(
      verify_all_reduce({with({copy({input(0), scratch(0)}, {scratch(0), output(0)})}, 1, 1)}),
      HasSubstr("reads a chunk that it overwrites with another one"));
  Program root = with({recv_reduce_right(1, {input(0)}, {output(0)})});
  Program other = with({copy({input(0)}, {output(0)}), send({0}, {input(0)})});
  expect_refused(verify(Collective::reduce, Programs{root, other}),
                 StartsWith("rank 1, step 0 (copy input[0] to output[0]): range out of bounds"));
}

TEST(Limits, ProgramsKeepTheLimits) {
  Programs programs = exchange();
  for (Program& program : programs) program.fan_out = 0;
  expect_refused(verify_all_reduce(programs),
                 "rank 0, step 0 (send input[0] to 1): exceeds the declared limit: this rank sends "
                 "to 1 ranks, fan_out is 0");
  programs = exchange();
  for (Program& program : programs) program.chunks_per_message = 0;
  expect_refused(verify_all_reduce(programs),
                 "rank 0, step 0 (send input[0] to 1): exceeds the declared limit: a message of 1 "
                 "chunks, chunks_per_message is 0");
}

TEST(Limits, AllRanksHaveTheSameLimits) {
  for (int32_t Program::*member :
       {&Program::input_chunks, &Program::output_chunks, &Program::scratch_chunks,
        &Program::chunks_per_message, &Program::fan_out}) {
    Programs programs = exchange();
    programs[1].*member = 3;
    expect_refused(verify_all_reduce(programs),
                   "rank 1 declares different chunk counts or limits from rank 0");
  }
}

TEST(Roots, Exist) {
  expect_refused(verify(Collective::reduce, exchange(), {.root = 2}),
                 "root 2 is not one of the 2 ranks");
  expect_refused(verify(Collective::reduce, {}), "root 0 is not one of the 0 ranks");
}

}  // namespace
}  // namespace tutti
