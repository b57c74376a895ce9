// Tests the choice of an algorithm for a call.
#include "collectives/cost/planner.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace tutti {
namespace {

// Returns a network in which the cost of a message equals that of 10 000 bytes.
Machine network(int ranks) {
  Machine machine;
  machine.model.cores = 1024;
  machine.model.shm.latency = 1e-5;
  machine.model.shm.send = 1e-7;
  machine.model.shm.recv = 1e-7;
  machine.model.shm.bytes.fill(
      {.send = 1e-9, .recv = 1e-10, .recv_reduce = 2e-10, .reduce = 2e-10, .copy = 1e-10});
  machine.limits = Limits::of_one_path(4, 8, {128 << 10, 0});
  machine.hosts = Hosts::equal(ranks, ranks);
  return machine;
}

Planner planner(int ranks) { return {{.ranks = ranks}, network(ranks)}; }

double predicted(Planner& planner, const CallToPlan& wanted, const std::string& name) {
  for (const Candidate& candidate : planner.explain(wanted)) {
    if (candidate.algorithm->name == name) return candidate.prediction.seconds;
  }
  return 0;
}

TEST(Planner, ChoosesTheCheapestCandidateThatItExplains) {
  for (const int ranks : {2, 3, 4, 8, 16}) {
    Planner p = planner(ranks);
    for (const Collective collective : kCollectivesWithAlgorithms) {
      for (uint64_t bytes = 8; bytes <= (64 << 20); bytes *= 64) {
        const CallToPlan wanted{.collective = collective, .bytes = bytes};
        const Algorithm& chosen = p.choose(wanted);
        const std::vector<Candidate> candidates = p.explain(wanted);
        EXPECT_EQ(candidates[0].prediction.seconds, predicted(p, wanted, chosen.name))
            << name(collective) << ' ' << chosen.name << ' ' << ranks << ' ' << bytes;
      }
    }
  }
}

// In a chain, each rank sends one message, so that the steps of a single rank do not show the
// chain's length.
TEST(Planner, TakesNoChainForSmallCallsOfManyRanks) {
  for (const int ranks : {100, 1000, 20'000}) {
    Machine machine = network(ranks);
    machine.hosts = Hosts::equal(ranks, 1);
    for (LinkCosts* const link : {&machine.model.shm, &machine.model.tcp}) {
      link->latency = 1e-5;
      link->send = link->recv = 1e-6;
    }
    Planner p({.ranks = ranks}, machine);
    for (const Collective collective :
         {Collective::broadcast, Collective::reduce, Collective::scan}) {
      const CallToPlan wanted{.collective = collective, .bytes = 8};
      const Algorithm& chosen = p.choose(wanted);
      EXPECT_FALSE(chosen.is_pipeline) << name(collective) << ' ' << ranks << ' ' << chosen.name;
      EXPECT_LT(predicted(p, wanted, chosen.name), 1e-3);
    }
  }
}

// With many ranks on a host, messages are short. Programs that send the chunks of many ranks at
// once do not fit in them.
TEST(Planner, TakesOnlyProgramsWhoseMessagesFit) {
  constexpr size_t kLongest = 512;
  for (const int ranks : {200, 1024, 3000}) {
    const Shape shape{.ranks = ranks};
    Machine machine = network(ranks);
    machine.limits = Limits::of_one_path(1, ranks - 1, {kLongest, kLongest});
    Planner p(shape, machine);
    for (const Collective collective : kCollectivesWithAlgorithms) {
      for (const Grade grade : {Grade::same_bits, Grade::canonical}) {
        const Algorithm& chosen = p.choose(
            {.collective = collective, .bytes = 16, .dtype = DType::f64, .at_least = grade});
        const auto chunks = static_cast<size_t>(program_of(chosen, shape).chunks_per_message);
        EXPECT_LE(chunks * sizeof(double), kLongest)
            << name(collective) << ' ' << chosen.name << ' ' << ranks;
      }
    }
  }
}

TEST(Planner, ChoosesFewMessagesForSmallAndLittleVolumeForLargeCalls) {
  Planner p = planner(16);
  const CallToPlan small{.collective = Collective::all_reduce, .bytes = 8};
  const CallToPlan large{.collective = Collective::all_reduce, .bytes = 64 << 20};
  EXPECT_LT(predicted(p, small, p.choose(small).name), 6e-5);  // four rounds instead of thirty
  // The time is close to that of twice the buffer over one link.
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

// "auto" never chooses an algorithm whose bits differ between ranks, however cheap the algorithm
// is.
TEST(Planner, NeverChoosesAlgorithmsThatAreOnlyCorrectOrDoNotRun) {
  Algorithm free = require_algorithm(Collective::all_reduce, "ring");
  free.name = "free";
  free.grade = Grade::correct;
  free.id = id_of("free");
  free.emit = [](const Shape&) { return Program{}; };
  Algorithm even = free;
  even.name = "even";
  even.grade = Grade::canonical;
  even.id = id_of("even");
  even.supports = [](const Shape& shape) {
    return std::string(shape.ranks % 2 == 0 ? "" : "it requires an even number of ranks");
  };
  const CallToPlan wanted{.collective = Collective::all_reduce, .bytes = 1 << 20};
  Planner five({.ranks = 5}, network(5), {&free, &even});
  EXPECT_NE(five.choose(wanted).name, "free");
  EXPECT_NE(five.choose(wanted).name, "even");
  Planner six({.ranks = 6}, network(6), {&free, &even});
  EXPECT_EQ(six.choose(wanted).name, "even");
  for (const Candidate& candidate : five.explain(wanted)) {
    const std::string& name = candidate.algorithm->name;
    EXPECT_TRUE((name != "free" && name != "even") || !candidate.excluded.empty()) << name;
  }
  EXPECT_THROW(five.choose({.collective = Collective::all_reduce, .bytes = 8, .direct = true}),
               Error);
}

// A program for one root cannot serve another root.
TEST(Planner, ChoosesAlgorithmsForTheRootOfTheCall) {
  Algorithm free = require_algorithm(Collective::broadcast, "linear");
  free.name = "free";
  free.id = id_of("broadcast free");
  free.emit = [](const Shape&) { return Program{}; };
  free.supports = [](const Shape& shape) { return std::string(shape.root == 0 ? "" : "root 0"); };
  Algorithm third = free;
  third.name = "third";
  third.id = id_of("broadcast third");
  third.supports = [](const Shape& shape) { return std::string(shape.root == 3 ? "" : "root 3"); };
  Planner p({.ranks = 7}, network(7), {&free, &third});
  const auto chosen = [&](Planner& planner, int root) {
    const CallToPlan wanted{.collective = Collective::broadcast, .root = root, .bytes = 1 << 20};
    for (const Candidate& candidate : planner.explain(wanted)) {
      if (candidate.algorithm->name != "free") continue;
      EXPECT_EQ(candidate.excluded.empty(), root == 0);
    }
    return planner.choose(wanted).name;
  };
  EXPECT_EQ(chosen(p, 0), "free");
  EXPECT_EQ(chosen(p, 3), "third");
  const std::string others = chosen(p, 1);
  EXPECT_NE(others, "free");
  EXPECT_NE(others, "third");
  EXPECT_EQ(chosen(p, 6), others);
  // The choice does not depend on the root that is used first.
  Planner again({.ranks = 7}, network(7), {&free, &third});
  EXPECT_EQ(chosen(again, 6), others);
  EXPECT_EQ(chosen(again, 3), "third");
  EXPECT_EQ(chosen(again, 0), "free");
}

TEST(Planner, ChoosesOnceForAThousandRoots) {
  constexpr int kRanks = 1000;
  int emitted = 0;
  Algorithm counting = require_algorithm(Collective::broadcast, "binomial");
  counting.name = "counting";
  counting.id = id_of("broadcast counting");
  counting.emit = [&emitted, emit = counting.emit](const Shape& shape) {
    ++emitted;
    return emit(shape);
  };
  Planner p({.ranks = kRanks}, network(kRanks), {&counting});
  for (int root = 0; root < kRanks; ++root) {
    p.choose({.collective = Collective::broadcast, .root = root, .bytes = 8});
  }
  EXPECT_LE(emitted, kRanks);
}

// An algorithm that is added to the catalogue at run time might exist on some ranks only.
TEST(Planner, LaterCatalogueEntriesDoNotChangeAPlanner) {
  const CallToPlan wanted{.collective = Collective::all_reduce, .bytes = 8};
  Planner p = planner(4);
  const size_t before = p.explain(wanted).size();
  Algorithm added = require_algorithm(Collective::all_reduce, "ring");
  added.name = "added";
  added.id = id_of("added");
  added.emit = [](const Shape&) { return Program{}; };
  add_algorithm(added);
  EXPECT_NE(find_algorithm(Collective::all_reduce, "added"), nullptr) << "it can be named";
  EXPECT_EQ(p.explain(wanted).size(), before);
  EXPECT_NE(planner(4).choose(wanted).name, "added");
}

TEST(Catalogue, RefusesTwoAlgorithmsWithOneId) {
  Algorithm first = require_algorithm(Collective::all_reduce, "ring");
  first.name = "first";
  first.id = id_of("one number");
  EXPECT_EQ(&add_algorithm(first), &add_algorithm(first));
  Algorithm second = first;
  second.name = "second";
  EXPECT_THROW(add_algorithm(second), Error);
  second.id = require_algorithm(Collective::all_reduce, "ring").id;
  EXPECT_THROW(add_algorithm(second), Error);
}

}  // namespace
}  // namespace tutti
