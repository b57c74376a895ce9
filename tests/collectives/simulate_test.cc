// Tests simulated collectives: formulas of the literature on idle networks; shared, slow and failed
// links; late and dead ranks; and ranks that are simulated as one.
#include "collectives/simulate/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "collectives/algorithms/hierarchical.h"
#include "collectives/simulate/candidates.h"
#include "collectives/simulate/joint_schedule.h"
#include "collectives/simulate/rounds.h"
#include "topology/networks/load_network.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Algorithm& algorithm(Collective collective, const std::string& name) {
  const Algorithm* composed = parse_hierarchical(name);
  return composed != nullptr ? *composed : require_algorithm(collective, name);
}

struct Case {
  std::string network;
  std::string name = "ring";
  Collective collective = Collective::all_reduce;
  int alike = 1;
};

// A network, whose links may fail, and an algorithm to simulate on it.
class Play {
 public:
  explicit Play(const Case& c)
      : network(parse_structure(c.network, {})),
        shape{.ranks = network.ranks(), .layout = Layout::of(network.places(network.ranks()))},
        schedule(make_schedule(algorithm(c.collective, c.name), shape, {.alike = c.alike})) {}

  SimulationResult run(SimulationOptions options = {}) {
    return simulate(schedule, network, options);
  }
  double time(double bytes) {
    SimulationOptions options;
    options.bytes = bytes;
    return run(options).time_us;
  }

  Network network;
  Shape shape;
  Schedule schedule;
};

// Returns the time of a ring all-reduce: 2 (alpha (p - 1) + beta n (p - 1) / p).
double ring_us(int ranks, double bytes, double alpha_us, double GBps) {
  return 2 * (alpha_us * (ranks - 1) + bytes / GBps * 1e-3 * (ranks - 1) / ranks);
}

// The closed form for round-based programs must equal their step-by-step simulation.
TEST(Rounds, TakeTheTimeOfTheirSimulation) {
  const std::pair<Collective, const char*> programs[] = {{Collective::all_reduce, "ring"},
                                                         {Collective::all_gather, "ring"},
                                                         {Collective::reduce_scatter, "ring"},
                                                         {Collective::all_to_all, "linear"}};
  for (const char* network : {"switch:16", "ring:9", "fat-tree:hosts=4,gpus=4",
                              "fat-tree:hosts=4,gpus=4,bandwidth=10GB/s", "rail:hosts=4,gpus=4",
                              "fat-tree:hosts=16,per-leaf=4,up=2", "switch:3"}) {
    for (const auto& [collective, name] : programs) {
      for (const double bytes : {64.0, 1e6, 3e8}) {
        SCOPED_TRACE(cat(network, ", ", tutti::name(collective), ", ", bytes));
        Play play({network, name, collective});
        const auto rounds = rounds_of(algorithm(collective, name), play.shape, bytes);
        ASSERT_TRUE(rounds);
        const SimulationResult quick = play_rounds(*rounds, play.network, play.shape.ranks);
        SimulationOptions options;
        options.bytes = bytes;
        const SimulationResult whole = play.run(options);
        EXPECT_NEAR(quick.time_us, whole.time_us, 0.1 * whole.time_us);
        EXPECT_EQ(quick.messages, whole.messages);
        EXPECT_NEAR(quick.bytes_sent, whole.bytes_sent, 1e-6 * whole.bytes_sent);
      }
    }
  }
}

TEST(Rounds, OnlyProgramsWithEqualRoundsHaveAClosedForm) {
  const Shape shape{.ranks = 8};
  for (const auto& [collective, name] : {std::pair(Collective::all_reduce, "halving_doubling"),
                                         {Collective::all_gather, "bruck"},
                                         {Collective::all_to_all, "bruck"},
                                         {Collective::broadcast, "chain"}}) {
    const Algorithm* const found = find_algorithm(collective, name);
    if (found != nullptr) {
      EXPECT_FALSE(rounds_of(*found, shape, 1e6)) << name;
    }
  }
}

TEST(Simulate, ARingOnAnIdleNetworkTakesTheTimeOfItsFormula) {
  for (const int ranks : {2, 3, 8, 64, 255}) {
    for (const double bytes : {8.0, 1000.0, 12345678.0, 4e9}) {
      Play ring({cat("ring:", ranks, ",bandwidth=25,latency=3us")});
      const double expected = ring_us(ranks, bytes, 3, 25);
      EXPECT_NEAR(ring.time(bytes), expected, 1e-12 * expected * ranks) << ranks << ", " << bytes;
      // Over a switch, a path consists of two links.
      Play star({cat("switch:", ranks, ",bandwidth=25,latency=1.5us")});
      EXPECT_NEAR(star.time(bytes), expected, 1e-12 * expected * ranks) << ranks << ", " << bytes;
    }
  }
}

TEST(Simulate, OtherAlgorithmsTakeTheTimesOfTheirFormulas) {
  const double n = 1e8;
  const double beta = 1e-3 / 50;  // us per byte
  const double alpha = 1;
  const std::string network = "switch:16,bandwidth=50,latency=0.5us";
  const auto time = [&](Collective collective, const std::string& name) {
    return Play({network, name, collective}).time(n);
  };
  EXPECT_NEAR(time(Collective::all_reduce, "halving_doubling"),
              2 * (4 * alpha + n * beta * 15 / 16), 1e-6);
  EXPECT_NEAR(time(Collective::all_reduce, "recursive_doubling"), 4 * (alpha + n * beta), 1e-6);
  EXPECT_NEAR(time(Collective::all_gather, "ring"), 15 * (alpha + n / 16 * beta), 1e-6);
  EXPECT_NEAR(time(Collective::all_gather, "recursive_doubling"), 4 * alpha + n * beta * 15 / 16,
              1e-6);
  EXPECT_NEAR(time(Collective::broadcast, "linear"), alpha + 15 * n * beta, 1e-6)
      << "all share the root's link";
  EXPECT_NEAR(Play({network, "dissemination", Collective::barrier}).time(0), 4 * alpha, 1e-9);
}

TEST(Simulate, SlicesOfATreeOverlap) {
  Play tree({"switch:64", "double_binary_tree"});
  SimulationOptions options;
  options.bytes = 1e9;
  const double whole = tree.run(options).time_us;
  options.slices = 256;
  const double sliced = tree.run(options).time_us;
  const double bound = 2 * 63.0 / 64 * 1e9 / 50e3;
  EXPECT_GT(sliced, bound);
  EXPECT_LT(sliced, 1.15 * bound) << "within 15% of the ring's volume";
  EXPECT_GT(whole, 4 * sliced);
}

TEST(Simulate, FlowsShareALink) {
  // There is one link between two leaves. In one of three rounds, four flows in each direction
  // share it.
  Play thin({"fat-tree:hosts=8,per-leaf=4,up=1,latency=0", "recursive_doubling"});
  // Two rounds stay inside a leaf; one uses the link.
  EXPECT_NEAR(thin.time(1e8), (2 + 4) * 1e8 / 50e3, 1e-6);
  Play wide({"fat-tree:hosts=8,per-leaf=4,up=4,latency=0", "recursive_doubling"});
  EXPECT_NEAR(wide.time(1e8), 3 * 1e8 / 50e3, 1e-6);
}

TEST(Simulate, CountsEveryByteThatAnAlgorithmSends) {
  for (const char* name : {"ring", "halving_doubling"}) {
    Play play({"switch:8", name});
    SimulationOptions options;
    options.bytes = 8000;
    const SimulationResult result = play.run(options);
    EXPECT_NEAR(result.bytes_sent, 8 * 2 * 7.0 / 8 * 8000, 1e-6) << name;
    EXPECT_LE(result.busiest_part, 1 + 1e-9) << name;
  }
}

TEST(Simulate, RanksSimulatedAsOneTakeTheSameTimeAsEachOfThem) {
  for (const char* name : {"hierarchical", "hierarchical(recursive_halving,halving_doubling,ring)",
                           "hierarchical(ring,recursive_doubling,ring)", "halving_doubling"}) {
    for (const char* network :
         {"fat-tree:hosts=128,per-leaf=16,gpus=8", "fat-tree:hosts=128,per-leaf=16,up=16,gpus=8",
          "fat-tree:hosts=128,per-leaf=16,gpus=8,nics=2", "rail:hosts=128,gpus=8"}) {
      SCOPED_TRACE(cat(name, " on ", network));
      Play each({network, name});
      Play as_one({network, name, Collective::all_reduce, 8});
      ASSERT_EQ(each.network.ranks(), 1024);
      if (as_one.schedule.symmetry == Symmetry::none) continue;
      EXPECT_EQ(as_one.schedule.steps() * 8, each.schedule.steps());
      for (const double bytes : {64.0, 1e6, 1e9}) {
        const double expected = each.time(bytes);
        EXPECT_NEAR(as_one.time(bytes), expected, 1e-9 * expected) << bytes;
      }
    }
  }
  Play as_one({"fat-tree:hosts=128,per-leaf=16,gpus=8", "hierarchical", Collective::all_reduce, 8});
  EXPECT_EQ(as_one.schedule.symmetry, Symmetry::rotation);
}

TEST(Simulate, DifferentRanksAreSimulatedSeparately) {
  for (const char* name : {"double_binary_tree", "knomial_4"}) {
    Play play({"rail:hosts=4,gpus=8", name, Collective::all_reduce, 8});
    EXPECT_EQ(play.schedule.symmetry, Symmetry::none) << name;
    EXPECT_EQ(play.schedule.walked(), 32) << name;
  }
}

TEST(Simulate, ASlowLinkDelaysARing) {
  Play play({"ring:8,bandwidth=50,latency=0"});
  const double usual = play.time(1e8);
  play.network.slow(play.network.links_named("host2-host3")[0], 4);
  EXPECT_NEAR(play.time(1e8), 4 * usual, 0.1 * usual);
}

TEST(Simulate, OtherRanksWaitForAStraggler) {
  Play play({"switch:8"});
  SimulationOptions options;
  options.bytes = 1e6;
  const double usual = play.run(options).time_us;
  options.stragglers = {{5, 1000}};
  const SimulationResult late = play.run(options);
  EXPECT_GT(late.time_us, 1000);
  EXPECT_LE(late.time_us, 1000 + usual);
  EXPECT_GT(late.first_us, 1000) << "nobody has a result without it";
}

TEST(Simulate, AFailedLinkIsAvoided) {
  Play play({"torus:4x4"});
  const double usual = play.time(1e8);
  play.network.fail(play.network.links_named("host0-host1")[0]);
  const double round = play.time(1e8);
  EXPECT_GT(round, usual);
  EXPECT_LT(round, 10 * usual);
}

// There are four hosts. Each has a card on each of two switches.
TEST(Simulate, HostsWithTwoCardsUseBoth) {
  std::string file = "6 2 8\n4 5\n";
  for (int host = 0; host < 4; ++host) {
    for (const int at : {4, 5}) file += cat(host, " ", at, " 100Gbps 1us 0\n");
  }
  const auto network = read_network(file, "two.txt");
  std::vector<Arc> arcs;
  EXPECT_EQ(network->route(0, 1, arcs), 2);
  EXPECT_EQ(arcs.size(), 4u);
  const Shape shape{.ranks = 4, .layout = Layout::of(network->places(4))};
  const Algorithm& ring = algorithm(Collective::all_reduce, "ring");
  const Schedule schedule = make_schedule(ring, shape);
  const auto time = [&](double bytes) {
    return simulate(schedule, *network, {.bytes = bytes}).time_us;
  };
  for (const double bytes : {8.0, 1e8}) {
    const double both = ring_us(4, bytes, 2, 25);
    EXPECT_NEAR(time(bytes), both, 1e-9 * both);
    EXPECT_NEAR(play_rounds(*rounds_of(ring, shape, bytes), *network, 4).time_us, both,
                0.01 * both);
  }
  network->fail(network->links_named("host2-switch4")[0]);
  const double one = ring_us(4, 1e8, 2, 12.5);
  EXPECT_NEAR(time(1e8), one, 0.001 * one) << "other hosts' latencies pass meanwhile";
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

TEST(Simulate, NamesARankThatIsCutOff) {
  Play play({"switch:4"});
  play.network.fail(play.network.links_named("host2-switch")[0]);
  const std::string what = error_of([&] { play.time(100); }, ErrorCode::connection_lost);
  EXPECT_THAT(what, AllOf(HasSubstr("rank 2"), HasSubstr("cut off")));
}

TEST(Simulate, NamesARankThatWaitsForAFailedRank) {
  Play play({"switch:6"});
  SimulationOptions options;
  options.bytes = 100;
  options.failed_ranks = {3};
  const std::string what = error_of([&] { play.run(options); }, ErrorCode::rank_died);
  EXPECT_THAT(what, AllOf(HasSubstr("rank 3 failed"), HasSubstr("wait for it: 4"),
                          HasSubstr("wait for these: 0-2,5")));
}

TEST(Simulate, TheSameSeedGivesTheSameTime) {
  const auto time = [](uint64_t seed, double jitter) {
    Play play({"fat-tree:hosts=16,per-leaf=4,up=2", "halving_doubling"});
    SimulationOptions options;
    options.bytes = 1e7;
    options.jitter = jitter;
    options.seed = seed;
    return play.run(options).time_us;
  };
  const double usual = time(0, 0);
  EXPECT_EQ(time(1, 0.1), time(1, 0.1));
  EXPECT_NE(time(1, 0.1), time(2, 0.1));
  EXPECT_EQ(time(5, 0), usual);
  EXPECT_NE(time(1, 0.1), usual);
  EXPECT_NEAR(time(1, 0.1), usual, 0.25 * usual) << "messages that meet make it a little more";
}

TEST(Simulate, ProcessorsTakeTheirTimeIfRequested) {
  Play play({"switch:4,bandwidth=50,latency=0"});
  SimulationOptions options;
  options.bytes = 4e6;
  const double usual = play.run(options).time_us;
  options.overhead_us = 2;
  EXPECT_NEAR(play.run(options).time_us, usual + 6 * 2, 1e-6) << "one message after the other";
  options.overhead_us = 0;
  options.reduce_GBps = 10;
  EXPECT_NEAR(play.run(options).time_us, usual + 3 * 100, 1e-6)
      << "three parts of 1 MB are reduced";
}

TEST(Simulate, StopsSimulationsThatTakeTooLong) {
  Play play({"switch:4"});
  SimulationOptions options;
  options.bytes = 1e9;
  options.give_up_us = 10;
  EXPECT_TRUE(std::isinf(play.run(options).time_us));
}

TEST(Simulate, RefusesSimulationsThatWouldTakeTooLong) {
  const Network network(parse_structure("switch:64", {}));
  const Shape shape{.ranks = 64, .layout = Layout::of(network.places(64))};
  const std::string what = error_of(
      [&] {
        make_schedule(require_algorithm(Collective::all_reduce, "ring"), shape,
                      {.most_steps = 1000});
      },
      ErrorCode::unsupported);
  EXPECT_THAT(what,
              AllOf(HasSubstr("limit is 1000 steps"), HasSubstr("let Tutti choose the algorithm")));
}

// The collective starts at time 0, or after all ranks have computed for some time.
TEST(Simulate, CollectivesInAJointScheduleTakeTheTimeTheyTakeAlone) {
  for (const char* name : {"ring", "halving_doubling", "hierarchical", "double_binary_tree"}) {
    SCOPED_TRACE(name);
    Play play({"fat-tree:hosts=8,per-leaf=4,up=2,gpus=4", name});
    SimulationOptions options;
    options.bytes = 1e7;
    options.reduce_GBps = 100;
    const double alone = play.run(options).time_us;
    std::vector<int32_t> members(32);
    std::iota(members.begin(), members.end(), 0);
    JointSchedule once(32);
    once.collective(play.schedule, options.bytes, members);
    EXPECT_NEAR(simulate(once.take(), play.network, options).time_us, alone, 1e-9 * alone);
    JointSchedule late(32);
    const auto ends = late.collective(play.schedule, options.bytes, members);
    for (const int32_t rank : members) {
      late.order(rank, late.compute(rank, 500), ends[static_cast<size_t>(rank)].first);
    }
    EXPECT_NEAR(simulate(late.take(), play.network, options).time_us, 500 + alone, 1e-9 * alone);
  }
}

TEST(Simulate, StepsOfAJointScheduleFollowEachOther) {
  Network network(parse_structure("switch:2,bandwidth=10,latency=1us", {}));
  JointSchedule joint(2);
  const auto [sent, received] = joint.message(0, 1, 1e6);
  joint.order(0, joint.compute(0, 40), sent);
  joint.order(1, received, joint.compute(1, 7));
  const Schedule schedule = joint.take();
  const SimulationResult result = simulate(schedule, network, {});
  EXPECT_DOUBLE_EQ(result.time_us, 40 + 100 + 2 + 7);
  EXPECT_EQ(result.last_rank, 1);
  EXPECT_EQ(result.bytes_sent, 1e6);
  SimulationOptions options;
  options.instant_messages = true;
  EXPECT_DOUBLE_EQ(simulate(schedule, network, options).time_us, 40 + 7);
}

// Every algorithm of the catalogue must terminate on ranks that share links unevenly.
TEST(Simulate, EveryAlgorithmEnds) {
  int played = 0;
  for (const Collective collective : kCollectivesWithAlgorithms) {
    for (const Algorithm* each : algorithms_for(collective)) {
      for (const char* network : {"fat-tree:hosts=4,per-leaf=2,up=1,gpus=3", "mesh:3x3"}) {
        Network made(parse_structure(network, {}));
        const Shape shape{.ranks = made.ranks(), .layout = Layout::of(made.places(made.ranks()))};
        if (!why_unsupported(*each, shape).empty()) continue;
        SCOPED_TRACE(cat(name(collective), ' ', each->name, " on ", network));
        for (const int slices : {1, 3}) {
          SimulationOptions options;
          options.bytes = 1e6;
          options.slices = slices;
          const SimulationResult result = simulate(make_schedule(*each, shape), made, options);
          EXPECT_TRUE(std::isfinite(result.time_us));
          EXPECT_LE(result.busiest_part, 1 + 1e-9) << "no link carries more than it can";
          ++played;
        }
      }
    }
  }
  EXPECT_GT(played, 150);
}

// A part of a host cannot represent a whole host, so that the candidates for such a network are
// ordered by the estimate for one rank.
TEST(Simulate, CandidatesForFewLargeHostsStayWithinTheNetwork) {
  Network network(parse_structure("switch:6000;ring:2", {}));
  ASSERT_EQ(network.alike_group_size(), 6000);
  const Shape shape{.ranks = 12'000, .layout = Layout::of(network.places(12'000))};
  const auto candidates =
      simulation_candidates(Collective::broadcast, shape, 1 << 20, network, 40'000'000);
  ASSERT_FALSE(candidates.empty());
  EXPECT_TRUE(std::isfinite(candidates.front().rough_us));
}

// The sends of a single rank do not show the length of a chain.
TEST(Simulate, CandidatesForManyRanksAreSortedByTheTimesOfAFewRanks) {
  const Case c{.network = "fat-tree:hosts=1500,gpus=8", .collective = Collective::broadcast};
  Network network(parse_structure(c.network, {}));
  const Shape shape{.ranks = 12'000, .layout = Layout::of(network.places(12'000))};
  const auto candidates =
      simulation_candidates(Collective::broadcast, shape, 1 << 26, network, 40'000'000);
  const auto time = [&](const Algorithm& algorithm) {
    const Schedule schedule = make_schedule(algorithm, shape, {.alike = 8});
    return simulate(schedule, network, {.bytes = 1 << 26}).time_us;
  };
  const double best = time(*candidates.front().algorithm);
  EXPECT_NEAR(candidates.front().rough_us, best, 0.5 * best);
  for (const char* other : {"binomial", "knomial_4", "double_tree", "chain_8"}) {
    EXPECT_LE(best, 1.01 * time(algorithm(Collective::broadcast, other))) << other;
  }
}

TEST(Simulate, CandidatesAreSortedAndExcludeLongSimulations) {
  Network network(parse_structure("switch:64", {}));
  const Shape shape{.ranks = 64, .layout = Layout::of(network.places(64))};
  const auto candidates =
      simulation_candidates(Collective::all_reduce, shape, 8, network, int64_t{64} * 200);
  ASSERT_FALSE(candidates.empty());
  EXPECT_TRUE(candidates[0].excluded.empty());
  EXPECT_NE(candidates[0].algorithm->name, "ring");
  for (const SimulationCandidate& candidate : candidates) {
    if (candidate.algorithm->name != "ring") continue;
    EXPECT_THAT(candidate.excluded, HasSubstr("steps"));
  }
}

}  // namespace
}  // namespace tutti
