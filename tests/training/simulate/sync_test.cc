// Tests simulated synchronization of data-parallel ranks against times computed by hand: with
// messages that take no time, and on links of a known bandwidth.
#include "training/simulate/sync.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "topology/networks/load_network.h"

namespace tutti::training {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kStep = 300;
constexpr double kBytes = 8e6;
constexpr double kBytesPerUs = 1e4;
constexpr int64_t kUpdates = 12;
const std::vector<int> kWorlds = {1, 2, 3, 4, 8};

// A switch with links of 10 GB/s and 1 us. Each message passes through two links.
std::string star(int ranks) { return cat("switch:", ranks, ",bandwidth=10,latency=1us"); }
double message_us(double bytes) { return 2 + bytes / kBytesPerUs; }
double ring_us(int ranks, double bytes) {
  return 2 * (ranks - 1) * message_us(bytes / static_cast<double>(ranks));
}

SyncWork work_of(const std::string& way, const std::vector<double>& slowdowns,
                 int64_t updates = kUpdates, double bytes = kBytes) {
  SyncWork work{.updates = updates,
                .step_us = {},
                .bytes = bytes,
                .seed = 7,
                .all_reduce = &require_algorithm(Collective::all_reduce, "ring")};
  set_way(work.way, way);
  for (const double slowdown : slowdowns) work.step_us.push_back(slowdown * kStep);
  return work;
}

SimulatedSync play(const SyncWork& work, const SimulationOptions& options = {}) {
  Network network(parse_structure(star(work.ranks()), {}));
  return simulate_sync(work, network.places(work.ranks()), network, options);
}

SimulatedSync play_idle(const SyncWork& work) { return play(work, {.instant_messages = true}); }

// Simulates with messages that take no time. Returns, for each worker, the times at which its steps
// end.
std::vector<std::vector<double>> ends_of(const SyncWork& work) {
  Network network(parse_structure(star(work.ranks()), {}));
  const std::vector<int64_t> steps(static_cast<size_t>(work.roles().workers()), work.updates);
  const SyncSchedule made =
      make_sync_schedule(work, steps, network.places(work.ranks()), 40'000'000);
  std::vector<double> times(static_cast<size_t>(made.schedule.steps()));
  SimulationOptions options{.instant_messages = true};
  options.stops_after = [&](int32_t step, double us) {
    times[static_cast<size_t>(step)] = us;
    return false;
  };
  simulate(made.schedule, network, options);
  std::vector<std::vector<double>> ends;
  for (const std::vector<int32_t>& its : made.ends) {
    std::vector<double>& own = ends.emplace_back();
    for (const int32_t step : its) own.push_back(times[static_cast<size_t>(step)]);
  }
  return ends;
}

// Returns slowdowns: all ranks except the last take kStep per step.
std::vector<double> last_is_slow(int ranks, double factor = 4) {
  std::vector<double> slowdowns(static_cast<size_t>(ranks), 1);
  slowdowns.back() = factor;
  return slowdowns;
}

TEST(Sync, AllWaitForTheSlowestRank) {
  for (const char* way : {"allreduce", "ps", "gossip:complete", "local:1", "diloco:1"}) {
    for (const int ranks : kWorlds) {
      const SimulatedSync played = play_idle(work_of(way, last_is_slow(ranks)));
      EXPECT_NEAR(played.network.time_us, kUpdates * 4 * kStep, 1e-6) << way << " " << ranks;
      EXPECT_NEAR(played.waiting.back(), 0, 1e-9);
      EXPECT_NEAR(played.waiting.front(), ranks == 1 ? 0 : 0.75, 1e-9);
    }
  }
}

TEST(Sync, AnApartServerComputesNothing) {
  const SimulatedSync played = play_idle(work_of("ps:1", last_is_slow(4)));
  EXPECT_NEAR(played.network.time_us, kUpdates * kStep, 1e-6) << "the slow one serves";
  EXPECT_EQ(played.waiting.size(), 3u);
}

// A worker begins clock c + 1 after all workers have sent clock c - B, where B is the bound.
TEST(Sync, WorkersAreAheadByAtMostTheBound) {
  const std::vector<double> slowdowns = {1, 4, 2.5, 1.5};
  for (const int64_t bound : {0, 1, 3, 20}) {
    const SyncWork work = work_of(cat("ssp:", bound), slowdowns);
    std::vector<std::vector<double>> computed(4), ends(4);
    for (int64_t clock = 0; clock < kUpdates; ++clock) {
      const auto c = static_cast<size_t>(clock);
      for (size_t w = 0; w < 4; ++w) {
        computed[w].push_back((c == 0 ? 0 : ends[w][c - 1]) + work.step_us[w]);
      }
      const int64_t awaited = clock + 1 == kUpdates ? clock : clock - bound;
      for (size_t w = 0; w < 4; ++w) {
        double end = computed[w][c];
        for (size_t other = 0; awaited >= 0 && other < 4; ++other) {
          end = std::max(end, computed[other][static_cast<size_t>(awaited)]);
        }
        ends[w].push_back(end);
      }
    }
    EXPECT_EQ(ends_of(work), ends) << bound;
    EXPECT_NEAR(play_idle(work).network.time_us, kUpdates * 4 * kStep, 1e-6);
  }
}

// Computes by hand the time at which the workers have completed `all` parts, if each works without
// waiting.
double time_of_parts(const std::vector<double>& step_us, int64_t all) {
  std::vector<double> times;
  for (const double us : step_us) {
    for (int64_t part = 1; part <= all; ++part) times.push_back(static_cast<double>(part) * us);
  }
  std::ranges::sort(times);
  return times[static_cast<size_t>(all - 1)];
}

TEST(Sync, AsynchronousWorkersWaitForNobody) {
  for (const int ranks : kWorlds) {
    for (const double factor : {1.0, 1.7, 4.0, 1000.0}) {
      const SyncWork work = work_of("async", last_is_slow(ranks, factor));
      const SimulatedSync played = play_idle(work);
      EXPECT_NEAR(played.network.time_us, time_of_parts(work.step_us, kUpdates * ranks), 1e-6);
      EXPECT_EQ(std::accumulate(played.steps.begin(), played.steps.end(), int64_t{0}),
                kUpdates * ranks);
      for (const double waiting : played.waiting) EXPECT_NEAR(waiting, 0, 1e-9);
    }
  }
}

// Messages take longer than computation, so that all workers complete nearly the same number of
// parts.
TEST(Sync, ASlowNetworkMakesAsynchronousWorkersAlike) {
  const SimulatedSync played = play(work_of("async:1", {1, 1, 1, 20, 1}, kUpdates, 1e9));
  EXPECT_EQ(std::accumulate(played.steps.begin(), played.steps.end(), int64_t{0}), kUpdates * 4);
  EXPECT_GE(played.steps.back(), kUpdates - 1);
}

TEST(Sync, LocalRanksWaitEachKUpdates) {
  const auto ends = ends_of(work_of("local:3", last_is_slow(4), 7));
  const double round = 3 * 4 * kStep;
  EXPECT_THAT(ends[0], ElementsAre(kStep, 2 * kStep, round, round + kStep, round + 2 * kStep,
                                   2 * round, 2 * round + kStep));
  EXPECT_EQ(ends_of(work_of("diloco:3", last_is_slow(4), 7)), ends);
  // The first two steps all-reduce gradients. Later, values are averaged every three updates.
  EXPECT_THAT(ends_of(work_of("post-local:3@2", last_is_slow(4), 5))[0],
              ElementsAre(4 * kStep, 8 * kStep, 9 * kStep, 10 * kStep, 5 * 4 * kStep));
}

// Two fragments are sent every four updates. Each is used one update after it was sent.
TEST(Sync, WaitsForAFragmentWhenItIsUsed) {
  const double fast = kStep, slow = 4 * kStep;
  const auto ends = ends_of(work_of("diloco:4,2,1", last_is_slow(2), 6));
  EXPECT_THAT(ends[0],
              ElementsAre(fast, 2 * fast, 2 * slow, 2 * slow + fast, 4 * slow, 4 * slow + fast));
}

// Rank 0 is slow. A rank at distance d from it in the ring is late from its d-th update on.
TEST(Sync, GossipSpreadsADelayOverTheRing) {
  for (const int ranks : kWorlds) {
    std::vector<double> slowdowns(static_cast<size_t>(ranks), 1);
    slowdowns[0] = 4;
    const auto ends = ends_of(work_of("gossip:ring", slowdowns));
    for (int rank = 0; rank < ranks; ++rank) {
      const int distance = std::min(rank, ranks - rank);
      for (int update = 1; update <= kUpdates; ++update) {
        const int late = std::max(0, std::min(update, update - distance + 1));
        const double expected = (late * 4 + (update - late)) * kStep;
        EXPECT_NEAR(ends[static_cast<size_t>(rank)][static_cast<size_t>(update - 1)], expected,
                    1e-6)
            << ranks << " ranks, rank " << rank << ", update " << update;
      }
    }
  }
}

TEST(Sync, ShardsAndValuesCrossALinkInTwoWays) {
  for (const int ranks : kWorlds) {
    const std::vector<double> alike(static_cast<size_t>(ranks), 1);
    const double n = ranks;
    const double both_ways = ranks == 1 ? 0 : 2 * message_us(kBytes * (n - 1) / n);
    const SimulatedSync played = play(work_of("ps", alike));
    EXPECT_NEAR(played.network.time_us, kUpdates * (kStep + both_ways), 1e-6) << ranks;
    EXPECT_NEAR(played.network.bytes_sent, kUpdates * 2 * (n - 1) * kBytes, 1);
    if (ranks == 1) continue;
    const double through_one = kUpdates * (kStep + 2 * message_us((n - 1) * kBytes));
    EXPECT_NEAR(play(work_of("ps:1", alike)).network.time_us, through_one, 1e-6) << ranks;
    EXPECT_NEAR(play(work_of("async:1", alike)).network.time_us, through_one, 1e-6) << ranks;
    EXPECT_THAT(play(work_of("async:1", alike)).steps, Each(kUpdates));
  }
}

TEST(Sync, SumsTakeTheTimesOfTheAlgorithm) {
  for (const int ranks : kWorlds) {
    const std::vector<double> alike(static_cast<size_t>(ranks), 1);
    const double sum = ranks == 1 ? 0 : ring_us(ranks, kBytes);
    const auto time = [&](const std::string& way) { return play(work_of(way, alike)).network; };
    EXPECT_NEAR(time("allreduce").time_us, kUpdates * (kStep + sum), 1e-6);
    EXPECT_NEAR(time("allreduce").bytes_sent, kUpdates * 2.0 * (ranks - 1) * kBytes, 1);
    EXPECT_NEAR(time("local:5").time_us, kUpdates * kStep + 2 * sum, 1e-6);
    EXPECT_NEAR(time("diloco:6").time_us, kUpdates * kStep + 2 * sum, 1e-6);
    EXPECT_NEAR(time("diloco:6,3").bytes_sent, time("diloco:6").bytes_sent, 1);
  }
}

TEST(Sync, PeersGetAllValues) {
  for (const int ranks : {2, 3, 4, 8}) {
    const std::vector<double> alike(static_cast<size_t>(ranks), 1);
    const double one = message_us(kBytes);
    for (const char* way : {"gossip:exp", "sgp"}) {
      const SimulatedSync played = play(work_of(way, alike));
      EXPECT_NEAR(played.network.time_us, kUpdates * (kStep + one), 1e-6) << way << " " << ranks;
      EXPECT_NEAR(played.network.bytes_sent, kUpdates * ranks * kBytes, 1);
    }
    EXPECT_NEAR(play(work_of("gossip:random", alike)).network.bytes_sent,
                kUpdates * (ranks - ranks % 2) * kBytes, 1);
    EXPECT_GE(play(work_of("sgp:random", alike)).network.time_us, kUpdates * kStep + one);
    const double neighbours = ranks == 2 ? one : 2 * one;
    EXPECT_NEAR(play(work_of("gossip:ring", alike)).network.time_us,
                kUpdates * (kStep + neighbours), 1e-6)
        << ranks;
  }
}

// Ranks 0 and 2 send requests to one rank at a time, and the other ranks answer while they compute.
// Rank 1 is slow.
TEST(Sync, RequestersWaitForNoSlowRank) {
  const SyncWork work = work_of("adpsgd", {1, 4, 1, 1});
  const auto ends = ends_of(work);
  for (const size_t rank : {0, 2, 3}) EXPECT_NEAR(ends[rank].back(), kUpdates * kStep, 1e-6);
  EXPECT_NEAR(ends[1].back(), kUpdates * 4 * kStep, 1e-6);
  for (const int ranks : {2, 3, 4, 8}) {
    const int askers = (ranks + 1) / 2;
    const SimulatedSync played =
        play(work_of("adpsgd", std::vector<double>(static_cast<size_t>(ranks), 1)));
    EXPECT_NEAR(played.network.bytes_sent, kUpdates * 2.0 * askers * kBytes, 1) << ranks;
    const double least = kUpdates * (kStep + 2 * message_us(kBytes));
    if (ranks == 2) {
      EXPECT_NEAR(played.network.time_us, least, 1e-6);
    } else {
      EXPECT_GE(played.network.time_us, least - 1e-6) << ranks;
    }
  }
}

TEST(Sync, OtherRanksWaitForARankThatFailed) {
  for (const char* way : {"allreduce", "ps", "async", "gossip:ring"}) {
    try {
      play(work_of(way, {1, 1, 1}), {.failed_ranks = {1}});
      ADD_FAILURE() << way << " went on";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::rank_died) << error.what();
    }
  }
}

TEST(Sync, NamesUnsupportedCases) {
  const auto error = [](const SyncWork& work, int64_t most_steps = 1000) -> std::string {
    Network network(parse_structure(star(work.ranks()), {}));
    try {
      simulate_sync(work, network.places(work.ranks()), network, {}, most_steps);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_THAT(error(work_of("ps:2", {1, 1})), HasSubstr("leaves no rank that computes"));
  EXPECT_THAT(error(work_of("async:3", {1, 1})), HasSubstr("leaves no rank that computes"));
  EXPECT_THAT(error(work_of("ps", {1, 1}, 0)), HasSubstr("0 updates"));
  EXPECT_THAT(error(work_of("ps", {-1, 1})), HasSubstr("a step of -300 us"));
  EXPECT_THAT(error(work_of("ps", {1}, 1, -1)), HasSubstr("-1 bytes"));
  for (const char* way : {"allreduce", "local:2", "diloco:2", "ps", "async", "gossip:ring"}) {
    EXPECT_THAT(error(work_of(way, {1, 1, 1, 1}, 100'000)), HasSubstr("steps to simulate")) << way;
  }
}

}  // namespace
}  // namespace tutti::training
