// Tests simulated training steps against times computed by hand: pipelines and sums of gradients,
// each alone and on shared links.
#include "training/simulate/step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "collectives/algorithms/hierarchical.h"
#include "topology/networks/load_network.h"
#include "training/pipeline/check.h"
#include "training/pipeline/schedules.h"

namespace tutti::training {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kForward = 100;
constexpr double kBackward = 200;

struct Case {
  std::string network;
  std::string schedule = "1f1b";
  pipeline::Shape shape;
  StepWork work;
  std::string algorithm = "ring";
  int alike = 1;
};

pipeline::Plan plan_of(const Case& c) {
  pipeline::Plan plan = make_plan(make_schedule(pipeline::schedule_named(c.schedule), c.shape));
  check(plan);
  return plan;
}

// Returns work whose backward passes take kBackward, half of it for weights.
StepWork work(double activation_bytes, double gradient_bytes = 0, double bucket_bytes = 1e12) {
  return {.costs = {.forward = {kForward},
                    .backward_input = {kBackward / 2},
                    .backward_weight = {kBackward / 2}},
          .activation_bytes = activation_bytes,
          .gradient_bytes = gradient_bytes,
          .bucket_bytes = bucket_bytes};
}

const Algorithm& algorithm(const std::string& name) {
  const Algorithm* composed = parse_hierarchical(name);
  return composed != nullptr ? *composed : require_algorithm(Collective::all_reduce, name);
}

StepSchedule schedule_of(const Case& c, const Network& network, int64_t most_steps = 40'000'000) {
  return make_step_schedule(plan_of(c), c.work, network.places(network.ranks()),
                            algorithm(c.algorithm), {.most_steps = most_steps, .alike = c.alike});
}

SimulatedStep play(const Case& c) {
  Network network(parse_structure(c.network, {}));
  return simulate_step(schedule_of(c, network), network, {});
}

// Returns the time of an all-reduce over a ring, 2 (alpha (p - 1) + beta n (p - 1) / p). Links have
// 10 GB/s and 1 us; a path over the switch has two links.
constexpr double kBytesPerUs = 1e4;
double ring_us(int ranks, double bytes) {
  return 2 * (2.0 * (ranks - 1) + bytes / kBytesPerUs * (ranks - 1) / ranks);
}
std::string star(int ranks) { return cat("switch:", ranks, ",bandwidth=10,latency=1us"); }

// Returns the time of a reduce_scatter or an all_gather over a ring.
double half_ring_us(int ranks, double bytes) { return ring_us(ranks, bytes) / 2; }

SimulatedStep play_zero(int stage, double gradients, int micro_batches = 1,
                        double optimizer_us = 0) {
  Case c{.network = star(4),
         .shape = {.ranks = 1, .micro_batches = micro_batches},
         .work = work(0, gradients)};
  c.work.zero = {.stage = stage, .all_gather = &require_algorithm(Collective::all_gather, "ring")};
  c.work.optimizer_us = optimizer_us;
  Network network(parse_structure(c.network, {}));
  const Algorithm& sum =
      require_algorithm(stage > 0 ? Collective::reduce_scatter : Collective::all_reduce, "ring");
  return simulate_step(make_step_schedule(plan_of(c), c.work, network.places(network.ranks()), sum),
                       network, {});
}

// Gathering 0.2 MB takes less time than a forward; gathering 8 MB takes more than a forward and a
// backward.
TEST(Step, ZeroGathersParametersBeforeTheFirstForward) {
  for (const double gradients : {2e5, 8e6}) {
    const double half = half_ring_us(4, gradients);
    for (const int stage : {1, 2}) {
      EXPECT_NEAR(play_zero(stage, gradients).network.time_us, half + kForward + kBackward + half,
                  1e-6);
      EXPECT_NEAR(play_zero(stage, gradients, 3).network.time_us,
                  half + 3 * (kForward + kBackward) + half, 1e-6)
          << "once";
    }
  }
}

TEST(Step, Zero3GathersParametersBeforeEachForwardAndBackward) {
  const double few = half_ring_us(4, 2e5);
  ASSERT_LT(few, kForward);
  EXPECT_NEAR(play_zero(3, 2e5).network.time_us, few + kForward + kBackward + few, 1e-6)
      << "the second one while the forward computes";
  const double many = half_ring_us(4, 8e6);
  ASSERT_GT(many, kForward + kBackward);
  EXPECT_NEAR(play_zero(3, 8e6).network.time_us, many + many + kBackward + many, 1e-6);
  // There are four gathers for two micro-batches. The third one begins after the first forward.
  EXPECT_NEAR(play_zero(3, 8e6, 2).network.time_us, 4 * many + kBackward + many, 1e-6);
  EXPECT_EQ(play_zero(3, 8e6, 2).network.messages - play_zero(2, 8e6, 2).network.messages,
            3 * 4 * 3);
}

TEST(Step, TheOptimizerComesLast) {
  for (const int stage : {0, 2}) {
    EXPECT_NEAR(play_zero(stage, 8e6, 1, 70).network.time_us,
                play_zero(stage, 8e6).network.time_us + 70, 1e-6);
    EXPECT_DOUBLE_EQ(play_zero(stage, 8e6, 1, 70).compute_us, kForward + kBackward + 70);
  }
}

TEST(Step, ZeroNeedsStagesThatKeepTheirChunks) {
  Case c{.network = star(8),
         .schedule = "chimera",
         .shape = {.ranks = 4, .micro_batches = 4},
         .work = work(0, 8e6)};
  c.work.zero = {.stage = 2, .all_gather = &require_algorithm(Collective::all_gather, "ring")};
  const Network network(parse_structure(c.network, {}));
  try {
    make_step_schedule(plan_of(c), c.work, network.places(network.ranks()),
                       require_algorithm(Collective::reduce_scatter, "ring"));
    FAIL() << "it was made";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("ZeRO with chimera"));
  }
}

TEST(Step, WithoutAPipelineItComputesAndThenSumsOneBucket) {
  const double gradients = 8e6;
  const int micro_batches = 3;
  const SimulatedStep step =
      play({.network = star(8), .shape = {1, micro_batches}, .work = work(0, gradients)});
  const double compute = micro_batches * (kForward + kBackward);
  const double sum = ring_us(8, gradients);
  EXPECT_NEAR(step.network.time_us, compute + sum, 1e-9 * (compute + sum));
  EXPECT_DOUBLE_EQ(step.compute_us, compute);
  EXPECT_DOUBLE_EQ(step.bubble_us, 0);
  EXPECT_NEAR(step.exposed_us, sum, 1e-9 * sum);
  EXPECT_NEAR(step.efficiency, compute / (compute + sum), 1e-12);
}

TEST(Step, OneRankOnlyComputes) {
  const SimulatedStep step =
      play({.network = "switch:1", .shape = {1, 4}, .work = work(1e6, 1e9, 1e6)});
  EXPECT_DOUBLE_EQ(step.network.time_us, 4 * (kForward + kBackward));
  EXPECT_DOUBLE_EQ(step.efficiency, 1);
  EXPECT_EQ(step.network.messages, 0);
}

// The idle time of each rank is (p - 1) (F + B).
TEST(Step, BubblesOfGPipeAnd1F1BAreThoseOfTheirFormula) {
  for (const char* schedule : {"gpipe", "1f1b"}) {
    for (const int stages : {2, 4, 8}) {
      SCOPED_TRACE(cat(schedule, ' ', stages));
      const SimulatedStep step = play({.network = cat("switch:", stages, ",latency=0"),
                                       .schedule = schedule,
                                       .shape = {stages, 2 * stages},
                                       .work = work(0)});
      EXPECT_DOUBLE_EQ(step.compute_us, 2 * stages * (kForward + kBackward));
      EXPECT_DOUBLE_EQ(step.bubble_us, (stages - 1) * (kForward + kBackward));
      EXPECT_DOUBLE_EQ(step.exposed_us, 0);
      EXPECT_DOUBLE_EQ(step.network.time_us, step.compute_us + step.bubble_us);
    }
  }
}

// Step times equal those of `tutti pipeline` for the same costs: for all schedules with flushes if
// messages take no time, and also if messages take time but share no link.
TEST(Step, PipelinesTakeTheTimesOfTheirOwnSimulator) {
  for (const pipeline::ScheduleKind& kind : pipeline::all_schedules()) {
    if (kind.updates != pipeline::Updates::flushed) continue;
    for (const double latency : {0.0, 7.0}) {
      SCOPED_TRACE(cat(kind.name, ", ", latency, " us"));
      Case c{.network = cat("full:4,latency=", latency, "us"),
             .schedule = std::string(kind.name),
             .shape = {4, 8, kind.has_virtual_stages ? 2 : 1},
             .work = work(0)};
      c.work.costs.backward_weight = {70};
      pipeline::Costs costs = c.work.costs;
      const double alone = simulate(plan_of(c), costs).makespan;
      costs.message = {latency};
      const double makespan = simulate(plan_of(c), costs).makespan;
      const SimulatedStep step = play(c);
      EXPECT_NEAR(step.network.time_us, makespan, 1e-9 * makespan);
      EXPECT_NEAR(step.compute_us + step.bubble_us, alone, 1e-9 * alone);
      EXPECT_NEAR(step.exposed_us, makespan - alone, 1e-9 * makespan);
    }
  }
}

TEST(Step, ActivationsAndTheirGradientsAreWaitedFor) {
  const double bytes = 5e6;
  const SimulatedStep step = play({.network = star(2), .shape = {2, 1}, .work = work(bytes)});
  const double message = 2 + bytes / kBytesPerUs;
  EXPECT_NEAR(step.exposed_us, 2 * message, 1e-9);
  EXPECT_NEAR(step.network.time_us, 2 * (kForward + kBackward) + 2 * message, 1e-9);
  EXPECT_THAT(step.idle_us, ElementsAre(step.network.time_us - kForward - kBackward,
                                        step.network.time_us - kForward - kBackward));
  EXPECT_EQ(step.network.messages, 2);
}

// Messages from rank 0 to rank 1 are sent one after another, 100 us each, with a latency of 2 us.
// Activations arrive after 102, 202 and 302 us. Backwards on rank 1 take 10 us and end after 312,
// 322 and 332 us. Gradients arrive after 414, 514 and 614 us.
TEST(Step, MessagesOverOneBoundaryQueue) {
  Case c{.network = star(2), .schedule = "gpipe", .shape = {2, 3}, .work = work(1e6)};
  c.work.costs = {.forward = {0}, .backward_input = {0}, .backward_weight = {10}};
  EXPECT_NEAR(play(c).network.time_us, 624, 1e-9);
}

// There are four ranks. The sum of a bucket takes less or more time than the half of backward
// during which it can be hidden.
TEST(Step, BucketsAreSummedDuringBackward) {
  const auto exposed = [&](double gradients, int buckets) {
    return play({.network = star(4),
                 .shape = {1, 2},
                 .work = work(0, gradients, gradients / buckets)})
        .exposed_us;
  };
  const double half = kBackward / 2;
  const double small = ring_us(4, 4e5);  // 72 us
  ASSERT_LT(small, half);
  EXPECT_NEAR(exposed(2 * 4e5, 2), small, 1e-9) << "the first one is hidden";
  const double large = ring_us(4, 4e6);  // 612 us
  EXPECT_NEAR(exposed(2 * 4e6, 2), 2 * large - half, 1e-9) << "the second one waits for the first";
  EXPECT_NEAR(exposed(4e6, 1), large, 1e-9);
}

TEST(Step, TheLastBucketOfAChunkMayBeSmaller) {
  // The buckets have 1 MB, 1 MB and 0.5 MB. The first one is complete after two fifths of the
  // backward.
  const SimulatedStep step =
      play({.network = star(2), .shape = {1, 1}, .work = work(0, 2.5e6, 1e6)});
  const double first = 0.4 * kBackward;
  const double sums = 2 * ring_us(2, 1e6) + ring_us(2, 5e5);
  EXPECT_NEAR(step.network.time_us, kForward + first + sums, 1e-9);
  EXPECT_EQ(step.network.messages, 3 * 4);
}

// If backward is split, its part for weights computes the gradients.
TEST(Step, BackwardWeightFillsTheBuckets) {
  Case c{.network = star(8), .schedule = "zb-h1", .shape = {4, 8}, .work = work(0, 4e5, 2e5)};
  const SimulatedStep step = play(c);
  EXPECT_GE(step.exposed_us, ring_us(2, 2e5) - 1e-9);
  EXPECT_EQ(step.network.messages, 2 * 2 * (3 * 8) + 8 * 2 * 2)
      << "messages of two pipelines, and of two buckets on eight ranks";
}

// A stage of Chimera has the chunks of both directions. Each chunk is summed over four ranks: two
// data ranks on each of two stages.
TEST(Step, ChimerasPairsSumTogether) {
  Case c{.network = star(8), .schedule = "chimera", .shape = {4, 4}, .work = work(0, 4e5)};
  const SimulatedStep with = play(c);
  c.work.gradient_bytes = 0;
  const SimulatedStep without = play(c);
  EXPECT_EQ(with.network.messages - without.network.messages, 8 * 2 * (2 * 3))
      << "two chunks on each rank, each one bucket, in a ring of four";
}

// Two data x two pipeline ranks are below two switches. Each stage has a rank below each switch:
//
//   0 ──┐             ┌── 1      activations and their gradients stay below a switch,
//       a ─────────── b          sums cross the one link between the two
//   2 ──┘             └── 3
Case on_two_switches(double activation_bytes) {
  Case c{.shape = {2, 1}, .work = work(activation_bytes, 8e6)};
  c.work.costs = {.forward = {0}, .backward_input = {0}, .backward_weight = {0, 10}};
  return c;
}
double time_on_two_switches(const Case& c) {
  std::string file = "6 2 5\n4 5\n";
  for (const char* link : {"0 4", "2 4", "1 5", "3 5", "4 5"}) file += cat(link, " 80Gbps 0ns 0\n");
  const std::unique_ptr<Network> network = read_network(file, "two_switches.txt");
  return simulate_step(schedule_of(c, *network), *network, {}).network.time_us;
}
double time_on_links_of_their_own(Case c) {
  c.network = "full:4,bandwidth=10,latency=0";
  return play(c).network.time_us;
}

// Both sums begin after 10 us. On separate links, a sum would take two messages of 400 us in each
// direction.
TEST(Step, SumsOfTwoStagesShareALink) {
  const Case c = on_two_switches(0);
  EXPECT_NEAR(time_on_links_of_their_own(c), 10 + 2 * 400, 1e-9);
  EXPECT_NEAR(time_on_two_switches(c), 10 + 4 * 400, 1e-9);
}

// The terms are, one after another: 400 us for the activations; 10 us for the backward of the
// second stage; 800 us for the gradients of the activations, which share a rank's link with the
// first message of the second stage's sum; 800 us for the second message of this sum, which shares
// the link between the switches with the first message of the first stage's sum; and 400 us for the
// last message.
TEST(Step, MessagesOfThePipelineShareLinksWithSums) {
  const Case c = on_two_switches(4e6);
  EXPECT_NEAR(time_on_links_of_their_own(c), 400 + 10 + 400 + 2 * 400, 1e-9);
  EXPECT_NEAR(time_on_two_switches(c), 400 + 10 + 800 + 800 + 400, 1e-9);
}

// Adds sums over tensor ranks, which use rings.
StepWork with_tensor(StepWork work, int ranks, int blocks, bool shares_rows = false) {
  work.tensor = {
      .ranks = ranks,
      .blocks = blocks,
      .shares_rows = shares_rows,
      .all_reduce = &algorithm("ring"),
      .reduce_scatter = &require_algorithm(Collective::reduce_scatter, "ring"),
      .all_gather = &require_algorithm(Collective::all_gather, "ring"),
  };
  return work;
}

// As in Megatron, each block waits for two sums in forward and two in backward. If rows are shared,
// a sum is replaced by its two halves, which together take as long and carry as many bytes.
TEST(Step, TensorRanksWaitForTheSumsOfEachBlock) {
  const double bytes = 4e6;
  const int micro_batches = 3;
  for (const bool shares_rows : {false, true}) {
    for (const int ranks : {2, 4}) {
      for (const int blocks : {1, 5}) {
        SCOPED_TRACE(cat(ranks, " ranks, ", blocks, " blocks, rows ", shares_rows));
        const SimulatedStep step =
            play({.network = star(ranks),
                  .shape = {1, micro_batches},
                  .work = with_tensor(work(bytes), ranks, blocks, shares_rows)});
        const double compute = micro_batches * (kForward + kBackward);
        const double sums = micro_batches * 4 * blocks * ring_us(ranks, bytes);
        EXPECT_NEAR(step.network.time_us, compute + sums, 1e-9 * (compute + sums));
        EXPECT_DOUBLE_EQ(step.compute_us, compute);
        EXPECT_NEAR(step.exposed_us, sums, 1e-6);
        EXPECT_NEAR(step.network.bytes_sent, micro_batches * 4 * blocks * 2 * (ranks - 1) * bytes,
                    1);
      }
    }
  }
}

// The time that a processor takes to send messages counts as exposed communication, not as a
// bubble.
TEST(Step, OverheadOfMessagesIsExposed) {
  const Case c{.network = star(4), .shape = {1, 2}, .work = with_tensor(work(1e6), 4, 1)};
  Network network(parse_structure(c.network, {}));
  const SimulatedStep step =
      simulate_step(schedule_of(c, network), network, {.overhead_us = 3, .reduce_GBps = 100});
  EXPECT_DOUBLE_EQ(step.bubble_us, 0);
  EXPECT_GT(step.exposed_us, 2 * 4 * ring_us(4, 1e6));
}

// Each tensor rank sends its part of the activations to the rank of the next stage with the same
// place. The receivers then gather all parts.
TEST(Step, TensorRanksSendPartsOverABoundary) {
  const double bytes = 8e6;
  const double part = 1 + bytes / 4 / kBytesPerUs;  // time on a separate link to the next stage
  const double gather = 3 * (1 + bytes / 4 / kBytesPerUs);
  const double half = gather;  // half of an all-reduce
  const auto time = [&](bool shares_rows) {
    return play({.network = "full:8,bandwidth=10,latency=1us",
                 .shape = {2, 1},
                 .work = with_tensor(work(bytes), 4, 1, shares_rows)})
        .network.time_us;
  };
  const double compute = 2 * (kForward + kBackward);
  const double sums = 2 * 4 * 2 * half;
  EXPECT_NEAR(time(true), compute + sums + 2 * part, 1e-6);
  EXPECT_NEAR(time(false), compute + sums + 2 * (part + gather), 1e-6);
}

// If backward is split, tensor ranks sum only in its part for inputs.
TEST(Step, TensorRanksDoNotSumGradientsOfWeights) {
  const auto messages = [](const char* schedule) {
    return play({.network = star(8),
                 .schedule = schedule,
                 .shape = {4, 8},
                 .work = with_tensor(work(1e5), 2, 3)})
        .network.messages;
  };
  EXPECT_EQ(messages("zb-h1"), messages("1f1b"));
}

// Gradients are summed over the ranks that have the same place on the tensor axis.
TEST(Step, RanksWithTheSameTensorPlaceSumTheirGradients) {
  const pipeline::Plan plan = plan_of({.shape = {2, 2}});
  EXPECT_THAT(ranks_that_sum(plan, 2, 2), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3),
                                                      ElementsAre(4, 6), ElementsAre(5, 7)));
  const double gradients = 8e6;
  StepWork none = with_tensor(work(0, gradients), 2, 1);
  const SimulatedStep step = play({.network = star(4), .shape = {1, 1}, .work = none});
  const double sums = 3 * 2 * 2.0;  // 3 sums of 0 bytes; the fourth is hidden
  EXPECT_NEAR(step.network.time_us, kForward + kBackward + sums + ring_us(2, gradients), 1e-6);
}

TEST(Step, RanksSimulatedAsOneTakeTheSameTimeAsEachOfThem) {
  for (const char* schedule : {"1f1b", "interleaved", "chimera"}) {
    for (const char* algorithm : {"hierarchical", "halving_doubling"}) {
      SCOPED_TRACE(cat(schedule, ", ", algorithm));
      Case c{.network = "fat-tree:hosts=16,per-leaf=4,up=2,gpus=8",
             .schedule = schedule,
             .shape = {4, 8, std::string(schedule) == "interleaved" ? 2 : 1},
             .work = work(1e6, 8e6, 3e6),
             .algorithm = algorithm};
      const double each = play(c).network.time_us;
      c.alike = 8;
      const Network network(parse_structure(c.network, {}));
      EXPECT_EQ(schedule_of(c, network).schedule.alike, 8);
      const SimulatedStep as_one = play(c);
      EXPECT_NEAR(as_one.network.time_us, each, 1e-9 * each);
    }
  }
}

TEST(Step, OtherRanksWaitForALateRank) {
  Network network(parse_structure(star(4), {}));
  const Case c{.shape = {2, 2}, .work = work(1e5, 1e6)};
  const StepSchedule schedule = schedule_of(c, network);
  const SimulatedStep usual = simulate_step(schedule, network, {});
  const SimulatedStep late = simulate_step(schedule, network, {.stragglers = {{0, 500}}});
  EXPECT_NEAR(late.network.time_us, usual.network.time_us + 500, 1e-6);
  EXPECT_NEAR(late.bubble_us, usual.bubble_us + 500, 1e-6);
}

template <typename Run>
std::string error_of(const Run& run, ErrorCode code) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(Step, NamesUnsupportedCases) {
  const auto what = [](const Case& c, ErrorCode code = ErrorCode::invalid_argument,
                       int64_t most_steps = 1'000'000) {
    Network network(parse_structure(c.network, {}));
    return error_of([&] { schedule_of(c, network, most_steps); }, code);
  };
  EXPECT_THAT(what({.network = star(6), .shape = {4, 4}, .work = work(0)}),
              HasSubstr("4 stages do not divide 6 ranks"));
  EXPECT_THAT(what({.network = star(2), .shape = {4, 4}, .work = work(0)}),
              HasSubstr("4 stages do not divide 2 ranks"));
  EXPECT_THAT(what({.network = star(6), .shape = {2, 4}, .work = with_tensor(work(0), 2, 1)}),
              HasSubstr("2 stages of 2 tensor-parallel ranks do not divide 6 ranks"));
  EXPECT_THAT(what({.network = star(4), .schedule = "pipedream", .shape = {2, 4}, .work = work(0)}),
              AllOf(HasSubstr("pipedream"), HasSubstr("flushed")));
  EXPECT_THAT(what({.network = star(4), .shape = {2, 4}, .work = work(-1)}),
              HasSubstr("-1 bytes of activations"));
  EXPECT_THAT(what({.network = star(4), .shape = {2, 4}, .work = work(0, 8e6, 0.5)}),
              HasSubstr("bytes of a bucket"));
  EXPECT_THAT(what({.network = star(64), .shape = {2, 4}, .work = work(0, 8e6, 1e4)},
                   ErrorCode::unsupported),
              AllOf(HasSubstr("limit is 1000000 steps"), HasSubstr("larger buckets")));
}

TEST(Step, SimulatesAThousandRanks) {
  const SimulatedStep step = play({.network = "fat-tree:hosts=128,per-leaf=16,gpus=8",
                                   .shape = {8, 32},
                                   .work = work(8e6, 5e8, 25 << 20),
                                   .algorithm = "halving_doubling",
                                   .alike = 8});
  EXPECT_GT(step.network.time_us, 39 * (kForward + kBackward));
  EXPECT_GT(step.efficiency, 0);
  EXPECT_LT(step.efficiency, 32.0 / 39);
  EXPECT_LE(step.network.busiest_part, 1 + 1e-9);
}

}  // namespace
}  // namespace tutti::training
