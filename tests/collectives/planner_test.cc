// The choice of algorithms.
#include "collectives/planner.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace tutti {
namespace {

// A network where a message costs as much as 10 000 bytes.
Machine network(int ranks) {
  Machine machine;
  machine.model.cores = 1024;
  machine.model.shm.latency = 1e-5;
  machine.model.shm.send = 1e-7;
  machine.model.shm.recv = 1e-7;
  machine.model.shm.bytes.fill(
      {.send = 1e-9, .recv = 1e-10, .recv_reduce = 2e-10, .reduce = 2e-10, .copy = 1e-10});
  machine.limits = {.lanes = 4, .slots = 8, .message_bytes = 128 << 10};
  machine.group = ranks;
  return machine;
}

Planner planner(int ranks) { return {{.ranks = ranks}, network(ranks)}; }

double predicted(Planner& planner, const Wanted& wanted, const std::string& name) {
  for (const Candidate& candidate : planner.explain(wanted)) {
    if (candidate.algorithm->name == name) return candidate.prediction.seconds;
  }
  return 0;
}

TEST(Planner, TakesTheCheapestOfWhatItExplains) {
  for (const int ranks : {2, 3, 4, 8, 16}) {
    Planner p = planner(ranks);
    for (const Collective collective : kCollectivesWithAlgorithms) {
      for (uint64_t bytes = 8; bytes <= (64 << 20); bytes *= 64) {
        const Wanted wanted{.collective = collective, .bytes = bytes};
        const Algorithm& chosen = p.choose(wanted);
        const std::vector<Candidate> candidates = p.explain(wanted);
        EXPECT_EQ(candidates[0].prediction.seconds, predicted(p, wanted, chosen.name))
            << name(collective) << ' ' << chosen.name << ' ' << ranks << ' ' << bytes;
      }
    }
  }
}

TEST(Planner, TakesFewMessagesForSmallAndLittleVolumeForLargeCalls) {
  Planner p = planner(16);
  const Wanted small{.collective = Collective::all_reduce, .bytes = 8};
  const Wanted large{.collective = Collective::all_reduce, .bytes = 64 << 20};
  EXPECT_LT(predicted(p, small, p.choose(small).name), 6e-5);  // four rounds, not thirty
  // Close to twice the buffer over one link.
  EXPECT_LT(predicted(p, large, p.choose(large).name), 1.5 * 2 * (64 << 20) * 1e-9);
}

TEST(Planner, EveryCallHasAnAlgorithm) {
  for (const int ranks : {1, 2, 3, 1000}) {
    Planner p = planner(ranks);
    for (const Collective collective : kCollectivesWithAlgorithms) {
      for (const uint64_t bytes : {uint64_t{0}, uint64_t{1} << 40}) {
        for (const Grade grade : {Grade::same_bits, Grade::canonical}) {
          const Algorithm& chosen =
              p.choose({.collective = collective, .bytes = bytes, .at_least = grade});
          EXPECT_EQ(chosen.collective, collective);
          EXPECT_GE(chosen.grade, grade);
        }
      }
    }
    for (const Collective c : {Collective::gather, Collective::scatter, Collective::all_to_all}) {
      EXPECT_TRUE(p.choose({.collective = c, .bytes = 8, .direct = true}).direct);
    }
  }
}

// However cheap, what gives different bits on different ranks is not for "auto".
TEST(Planner, NeverTakesWhatIsOnlyCorrectOrDoesNotRun) {
  Algorithm free = require_algorithm(Collective::all_reduce, "ring");
  free.name = "free";
  free.grade = Grade::correct;
  free.id = kImported | 1;
  free.emit = [](const Shape&) { return Program{}; };
  Algorithm even = free;
  even.name = "even";
  even.grade = Grade::canonical;
  even.id = kImported | 2;
  even.supports = [](const Shape& shape) {
    return std::string(shape.ranks % 2 == 0 ? "" : "it needs an even number of ranks");
  };
  add_algorithm(free);
  add_algorithm(even);
  const Wanted wanted{.collective = Collective::all_reduce, .bytes = 1 << 20};
  Planner five = planner(5);
  EXPECT_NE(five.choose(wanted).name, "free");
  EXPECT_NE(five.choose(wanted).name, "even");
  Planner six = planner(6);
  EXPECT_EQ(six.choose(wanted).name, "even");
  for (const Candidate& candidate : five.explain(wanted)) {
    const std::string& name = candidate.algorithm->name;
    EXPECT_TRUE((name != "free" && name != "even") || !candidate.excluded.empty()) << name;
  }
  EXPECT_THROW(five.choose({.collective = Collective::all_reduce, .bytes = 8, .direct = true}),
               Error);
}

}  // namespace
}  // namespace tutti
