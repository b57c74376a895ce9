// Tests predicted costs against textbook formulas, for a machine with round numbers.
#include "collectives/cost/cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "collectives/cost/cost_model.h"
#include "collectives/program/algorithm.h"

namespace tutti {
namespace {

constexpr double kAlpha = 1e-6;
constexpr double kBeta = 1e-9;
constexpr double kGamma = 0.25e-9;
constexpr uint64_t kBytes = 1 << 20;

// Returns the machine of Hockney's model: a message takes alpha + n beta, and reducing takes n
// gamma. There is one slice, and one core per rank.
Machine hockney(int ranks) {
  Machine machine;
  machine.model.cores = 1024;
  machine.model.shm.latency = kAlpha;
  machine.model.shm.bytes.fill({.send = kBeta, .recv_reduce = kGamma, .reduce = kGamma});
  machine.limits = Limits::of_one_path(1, 1, {uint64_t{1} << 40, 0});
  machine.hosts = Hosts::equal(ranks, ranks);
  return machine;
}

std::vector<Plan> plans_of(Collective collective, std::string_view name, int ranks) {
  const Algorithm& algorithm = require_algorithm(collective, name);
  std::vector<Plan> plans;
  for (int rank = 0; rank < ranks; ++rank) {
    const Shape shape{.ranks = ranks, .rank = rank};
    plans.push_back(make_plan(collective, shape, algorithm.emit(shape)));
  }
  return plans;
}

double seconds(Collective collective, std::string_view name, int ranks, uint64_t bytes,
               const Machine& machine) {
  const std::vector<Plan> plans = plans_of(collective, name, ranks);
  const double bound = lower_bound(plans[0], bytes, DType::f32, machine);
  const double predicted = predict(plans, bytes, DType::f32, machine).seconds;
  EXPECT_LE(bound, predicted * (1 + 1e-9)) << name;
  return predicted;
}

TEST(Cost, RingMatchesPatarasukAndYuan) {
  for (const int p : {2, 3, 8, 33}) {
    constexpr uint64_t kPart = 32 << 10;
    const double expected = 2 * (p - 1) * (kAlpha + kPart * kBeta) + (p - 1) * kPart * kGamma;
    EXPECT_NEAR(seconds(Collective::all_reduce, "ring", p, kPart * p, hockney(p)), expected,
                1e-9 * expected)
        << p;
    EXPECT_NEAR(rough_time(plans_of(Collective::all_reduce, "ring", p)[0], kPart * p, DType::f32,
                           hockney(p)),
                expected, 1e-9 * expected)
        << p;
  }
}

TEST(Cost, RecursiveDoublingIsLogarithmic) {
  for (int rounds = 1; rounds < 7; ++rounds) {
    const double expected = rounds * (kAlpha + kBytes * (kBeta + kGamma));
    EXPECT_NEAR(seconds(Collective::all_reduce, "recursive_doubling", 1 << rounds, kBytes,
                        hockney(1 << rounds)),
                expected, 1e-9 * expected);
  }
}

TEST(Cost, BarrierCostsItsRounds) {
  EXPECT_NEAR(seconds(Collective::barrier, "dissemination", 9, 0, hockney(9)), 4 * kAlpha, 1e-12);
}

// A chain takes p - 1 hops for the first slice. Each further slice takes the time of a step of a
// rank in the middle.
TEST(Cost, ChainCostsItsSlowestLink) {
  constexpr int p = 5;
  constexpr int kSlices = 64;
  Machine machine = hockney(p);
  machine.limits = Limits::of_one_path(1, 1, {kBytes / kSlices, 0});
  machine.model.shm.bytes.fill({.send = kBeta, .recv = kBeta});
  const double slice = static_cast<double>(kBytes) / kSlices * kBeta;
  const double expected = (p - 1) * (2 * slice + kAlpha) + (kSlices - 1) * 2 * slice;
  EXPECT_NEAR(seconds(Collective::broadcast, "chain", p, kBytes, machine), expected,
              0.02 * expected);
}

// The call has one slice, but its chunks are separate messages. A rank forwards the first chunks
// before it has received all.
TEST(Cost, ChainOfSeveralChunksIsAPipeline) {
  constexpr int p = 4;
  const Machine machine = hockney(p);
  const double whole = seconds(Collective::broadcast, "chain", p, kBytes, machine);
  EXPECT_NEAR(seconds(Collective::broadcast, "chain_8", p, kBytes, machine),
              whole / (p - 1) * 10 / 8, 0.05 * whole);
}

TEST(Cost, SharedCoresDoAllOfTheWork) {
  constexpr int p = 8;
  Machine machine = hockney(p);
  const double alone = seconds(Collective::all_reduce, "two_shot", p, kBytes, machine);
  machine.model.cores = 1;
  const double sharing = seconds(Collective::all_reduce, "two_shot", p, kBytes, machine);
  // The work for each piece is counted once.
  const double work = p * 2.0 * (p - 1) / p * kBytes * kBeta / (p - 1);
  EXPECT_GE(sharing, work);
  EXPECT_GT(sharing, alone);
  machine.model.switch_time = 1e-4;
  EXPECT_GE(seconds(Collective::all_reduce, "two_shot", p, kBytes, machine), sharing + 7e-4);
}

// In shared memory, one message is published for all readers. Over sockets, it is sent to each of
// them.
TEST(Cost, ManyReadersShareOneMessage) {
  constexpr int p = 9;
  Machine machine = hockney(p);
  machine.model.tcp = machine.model.shm;
  const double published = seconds(Collective::broadcast, "linear", p, kBytes, machine);
  machine.near_shm = false;
  const double sent = seconds(Collective::broadcast, "linear", p, kBytes, machine);
  EXPECT_NEAR(published, kAlpha + kBytes * kBeta, 1e-9);
  EXPECT_NEAR(sent, kAlpha + (p - 1) * kBytes * kBeta, 1e-9);
}

// The data, a cache line, fill one chunk. The chunks of the other ranks are empty and are not sent.
TEST(Cost, SmallCallsCostOnlyTheChunksThatTheyFill) {
  constexpr int p = 9;
  constexpr uint64_t kLine = 64;
  Machine machine = hockney(p);
  machine.model.shm.recv = kAlpha;
  const double line = kLine * (kBeta + (p - 1) * kGamma);
  EXPECT_NEAR(seconds(Collective::all_reduce, "two_shot", p, kLine, machine),
              // The first rank receives the inputs of the others one by one, and then sends the
              // result to all.
              (kAlpha + (p - 1) * kAlpha) + (kAlpha + kAlpha) + line + kLine * kBeta, 1e-9);
  EXPECT_EQ(seconds(Collective::all_reduce, "two_shot", p, 0, machine), machine.model.shm.call);
}

TEST(Cost, PredictionStopsAtTheTimeLimit) {
  const std::vector<Plan> plans = plans_of(Collective::all_reduce, "ring", 8);
  const Machine machine = hockney(8);
  const double needed = predict(plans, kBytes, DType::f32, machine).seconds;
  const auto within = [&](double time) {
    return predict(plans, kBytes, DType::f32, machine, time).seconds;
  };
  EXPECT_EQ(within(needed * 1.001), needed);
  EXPECT_GT(within(needed * 0.9), needed * 0.9);
}

TEST(Cost, FarLinksAddTheirLatency) {
  Machine machine = hockney(8);
  machine.model.tcp = machine.model.shm;
  machine.model.tcp.latency = 100 * kAlpha;
  const double near = seconds(Collective::all_reduce, "recursive_doubling", 8, 8, machine);
  machine.hosts = Hosts::equal(8, 4);  // in one of the three rounds, messages leave the host
  EXPECT_NEAR(seconds(Collective::all_reduce, "recursive_doubling", 8, 8, machine),
              near + 99 * kAlpha, 1e-9);
}

// Messages that leave a host are serialized, and so are messages that enter it.
TEST(Cost, RanksOfAHostShareItsCard) {
  constexpr double kWire = 10e-9;
  Machine machine = hockney(8);
  machine.model.tcp.wire = kWire;
  const auto on_hosts_of = [&](Collective collective, std::string_view name, int each) {
    machine.hosts = Hosts::equal(8, each);
    return predict(plans_of(collective, name, 8), kBytes, DType::f32, machine);
  };
  // With one rank per host, the whole buffer crosses the network in three rounds.
  EXPECT_NEAR(on_hosts_of(Collective::all_reduce, "recursive_doubling", 1).wire, 3 * kBytes * kWire,
              1e-9);
  // Four ranks on each of two hosts send the whole buffer in the last round.
  const Prediction shared = on_hosts_of(Collective::all_reduce, "recursive_doubling", 4);
  EXPECT_NEAR(shared.wire, 4 * kBytes * kWire, 1e-9);
  EXPECT_GE(shared.seconds, shared.wire + 2 * kBytes * kBeta);
  // In a ring, one rank of each host sends to the next host. It sends 14 messages of an eighth of
  // the buffer.
  EXPECT_NEAR(on_hosts_of(Collective::all_reduce, "ring", 4).wire, 14 * kBytes / 8 * kWire, 1e-9);
  EXPECT_EQ(on_hosts_of(Collective::all_reduce, "ring", 8).wire, 0);
  // The root receives from seven ranks, three of which are on its host.
  const Prediction gather = on_hosts_of(Collective::gather, "linear", 4);
  EXPECT_NEAR(gather.wire, 4 * kBytes * kWire, 1e-9);
  EXPECT_NEAR(gather.seconds, gather.wire, 1e-4);
  EXPECT_TRUE(gather.enters || gather.host == 1);
}

TEST(Cost, MeasuredFabricsAreUsed) {
  Machine machine = hockney(8);
  machine.model.tcp = machine.model.shm;
  machine.model.own_link(PathClass::ucx).latency = 100 * kAlpha;
  machine.near_shm = false;
  const double by_tcp = seconds(Collective::all_reduce, "recursive_doubling", 8, 8, machine);
  machine.far = PathClass::ucx;
  EXPECT_NEAR(seconds(Collective::all_reduce, "recursive_doubling", 8, 8, machine),
              by_tcp + 3 * 99 * kAlpha, 1e-9);
}

// With hosts a b a b ..., only the first of three rounds of recursive doubling is between hosts;
// with hosts a a a a b b b b, only the last one.
TEST(Cost, FarLinksDependOnWhereTheRanksAre) {
  std::vector<Place> cyclic;
  for (int rank = 0; rank < 8; ++rank) cyclic.push_back({.host = rank % 2 == 0 ? "a" : "b"});
  Machine machine = hockney(8);
  machine.model.tcp = machine.model.shm;
  machine.model.tcp.latency = 100 * kAlpha;
  const auto on = [&](const Hosts& hosts) {
    machine.hosts = hosts;
    return seconds(Collective::all_reduce, "recursive_doubling", 8, 8, machine);
  };
  const double one_host = on(Hosts::equal(8, 8));
  const double all_far = on(Hosts::equal(8, 1));
  EXPECT_NEAR(on(Hosts::of(cyclic)), one_host + 99 * kAlpha, 1e-9);
  EXPECT_NEAR(all_far, one_host + 3 * 99 * kAlpha, 1e-9);
  // Six ranks are on one host, two on the other. The second and the third round are between hosts.
  std::vector<Place> uneven;
  for (int rank = 0; rank < 8; ++rank) uneven.push_back({.host = rank < 6 ? "a" : "b"});
  EXPECT_NEAR(on(Hosts::of(uneven)), one_host + 2 * 99 * kAlpha, 1e-9);
}

// ---- parameters

TEST(CostModel, InterpolatesBetweenSizes) {
  LinkCosts link;
  link.bytes[0].send = 1;
  link.bytes[1].send = 4;
  link.bytes.back().send = 9;
  EXPECT_EQ(link.at(0).send, 1);
  EXPECT_EQ(link.at(LinkCosts::kFootprints[1]).send, 4);
  EXPECT_EQ(link.at(uint64_t{1} << 40).send, 9);
  const double middle = link.at(LinkCosts::kFootprints[0] * 2).send;
  EXPECT_GT(middle, 1);
  EXPECT_LT(middle, 4);
}

TEST(CostModel, IsEqualAfterBeingWrittenAndRead) {
  CostModel model = CostModel::defaults();
  model.tcp.bytes[2].recv_reduce = 1.0 / 3;
  model.cores = 7;
  EXPECT_EQ(to_json(parse_cost_model(to_json(model))), to_json(model));
  model.own_link(PathClass::ofi).latency = 0.25;
  const CostModel again = parse_cost_model(to_json(model));
  EXPECT_FALSE(again.ucx.has_value());
  EXPECT_EQ(again.link(PathClass::ofi).latency, 0.25);
  EXPECT_EQ(to_json(again), to_json(model));
}

TEST(CostModel, AnUnmeasuredFabricCostsWhatTcpCosts) {
  const CostModel model = CostModel::defaults();
  EXPECT_EQ(&model.link(PathClass::ucx), &model.tcp);
  EXPECT_EQ(&model.link(PathClass::ofi), &model.tcp);
  EXPECT_FALSE(fabrics_quicker_than_tcp(model).has_value());
}

TEST(CostModel, OrdersFabricsByTheTimeOfMessages) {
  using Fabrics = std::vector<PathClass>;
  CostModel model = CostModel::defaults();
  model.tcp.latency = 1e-3;
  model.own_link(PathClass::ucx).latency *= 0.99;
  EXPECT_EQ(fabrics_quicker_than_tcp(model), Fabrics{}) << "hardly";
  model.own_link(PathClass::ucx).latency /= 4;
  EXPECT_EQ(fabrics_quicker_than_tcp(model), Fabrics{PathClass::ucx});
  model.own_link(PathClass::ofi).latency /= 40;
  EXPECT_EQ(fabrics_quicker_than_tcp(model), (Fabrics{PathClass::ofi, PathClass::ucx}));
  // Large messages count as much as small ones.
  for (ByteCosts& bytes : model.own_link(PathClass::ofi).bytes) bytes.recv *= 100;
  EXPECT_EQ(fabrics_quicker_than_tcp(model), Fabrics{PathClass::ucx});
  model.ucx->latency *= 100;
  EXPECT_EQ(fabrics_quicker_than_tcp(model), Fabrics{});
}

TEST(CostModel, RefusesInvalidTexts) {
  const std::string good = to_json(CostModel::defaults());
  for (const std::string& bad : {std::string(), std::string("{}"), good.substr(0, good.size() / 2),
                                 std::string(R"({"format":99})")}) {
    EXPECT_THROW(parse_cost_model(bad), Error) << bad;
  }
  std::string negative = good;
  negative.replace(negative.find("\"call\":") + 7, 1, "-1");
  EXPECT_THROW(parse_cost_model(negative), Error);
}

TEST(CostModel, IsReadFromTheFileNamedInTheSettings) {
  const std::string path = ::testing::TempDir() + "/tutti_cost_model.json";
  CostModel model = CostModel::defaults();
  model.switch_time = 0.5;
  std::ofstream(path) << to_json(model);
  settings().set("TUTTI_TUNE_FILE", path);
  EXPECT_EQ(load_cost_model().switch_time, 0.5);
  std::ofstream(path) << "not JSON";  // logged and ignored
  EXPECT_EQ(to_json(load_cost_model()), to_json(CostModel::defaults()));
  settings().set("TUTTI_TUNE_FILE", "none");
  EXPECT_EQ(cost_model_file(), "");
  EXPECT_EQ(to_json(load_cost_model()), to_json(CostModel::defaults()));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tutti
