// Tests bench/tune.h: the parameters of a machine must be found from times that they predict.
#include "bench/tune.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <vector>

#include "base/error.h"
#include "bench/gpu_tune.h"
#include "collectives/cost/gpu_costs.h"

namespace tutti::bench {
namespace {

// Returns the times between ranks on two hosts of a machine with these parameters.
std::vector<Observation> times_between_hosts(const CostModel& machine) {
  std::vector<Observation> observations = pair_observations(PathClass::tcp);
  const std::vector<Observation> shared = shared_observations(PathClass::tcp);
  observations.insert(observations.end(), shared.begin(), shared.end());
  for (Observation& o : observations) {
    o.hosts = 2;
    o.seconds = predict(o, machine);
  }
  return observations;
}

TEST(Tune, FindsTheShareOfRanksOnASlowCard) {
  for (const double wire : {1e-9, 20e-9, 80e-9}) {
    CostModel machine = CostModel::defaults();
    machine.tcp.wire = wire;
    const std::vector<Observation> observations = times_between_hosts(machine);
    const CostModel found = fit(CostModel::defaults(), observations);
    EXPECT_NEAR(found.tcp.wire, wire, 0.15 * wire);
    for (const Observation& o : observations) {
      if (o.ranks == 2) continue;
      EXPECT_NEAR(predict(o, found) / o.seconds, 1, 0.2)
          << o.algorithm << ", " << o.bytes << " bytes, " << wire;
    }
  }
}

TEST(Tune, KeepsTheCardIfNothingCrossedIt) {
  CostModel model = CostModel::defaults();
  std::vector<Observation> observations = pair_observations(PathClass::shm);
  for (Observation& o : observations) o.seconds = predict(o, model);
  EXPECT_EQ(fit(model, observations).tcp.wire, model.tcp.wire);
}

TEST(Tune, ObservationsAreEqualAfterBeingRead) {
  const std::vector<Observation> observations = times_between_hosts(CostModel::defaults());
  const std::vector<Observation> again = read(write(observations));
  ASSERT_EQ(again.size(), observations.size());
  for (size_t i = 0; i < again.size(); ++i) {
    EXPECT_EQ(again[i].algorithm, observations[i].algorithm);
    EXPECT_EQ(again[i].hosts, 2);
    EXPECT_EQ(again[i].bytes, observations[i].bytes);
    EXPECT_NEAR(again[i].seconds / observations[i].seconds, 1, 1e-4);
  }
  EXPECT_THROW(read("all_reduce ring 2 tcp 8 1e-6\n"), Error);
}

// The fitted model must predict the times of another GPU, also for sizes that were not measured.
TEST(TuneOfGpus, FindsTheParametersOfAnotherGpu) {
  constexpr int kRanks = 4;
  const GpuCosts published = gpu_costs(CostModel::defaults(), "h100");
  GpuCosts machine = published;
  for (LinkCosts* const link : {&machine.simple, &machine.lines}) {
    link->call *= 1.8;
    link->latency *= 0.6;
    link->wire *= 1.5;
  }
  std::vector<GpuObservation> observations = gpu_observations(kRanks);
  for (GpuObservation& o : observations) o.seconds = predict(o, machine);
  EXPECT_EQ(write(read_gpu_observations("noise\n" + write(observations))), write(observations));
  const GpuCosts found = fit(published, observations);
  EXPECT_NEAR(found.simple.wire, machine.simple.wire, 0.1 * machine.simple.wire);
  EXPECT_NEAR(found.lines.call, machine.lines.call, 0.1 * machine.lines.call);
  for (const char* const algorithm : {"halving_doubling", "double_binary_tree"}) {
    for (const uint64_t bytes : {1 << 10, 1 << 22}) {
      const GpuObservation o{algorithm, GpuProtocol::simple, kRanks, bytes, 0};
      EXPECT_NEAR(predict(o, found) / predict(o, machine), 1, 0.1) << algorithm << ' ' << bytes;
    }
  }
}

}  // namespace
}  // namespace tutti::bench
