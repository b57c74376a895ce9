// Tests closed forms of call times: against numbers computed by hand, and that more work never
// takes less time.
#include "collectives/cluster/predict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"

namespace tutti {
namespace {

// Returns a cluster with one protocol and round numbers: 100 GB/s inside a host, 50 GB/s between
// hosts.
Cluster simple_cluster(int hosts, int gpus) {
  return {.name = "simple",
          .hosts = hosts,
          .gpus = gpus,
          .launch_us = 10,
          .inside = {.GBps = 100, .step_us = {0, 0, 1}, .message_us = 2},
          .between = {.GBps = 50, .step_us = {0, 0, 3}, .message_us = 4},
          .errors = {{0, 0, 0}},
          .source = "by hand"};
}

double time_of(const Cluster& cluster, Collective collective, double bytes,
               std::string_view algorithm) {
  for (const ClusterCandidate& c : predict(cluster, collective, bytes).candidates) {
    if (c.algorithm == algorithm) return c.time_us();
  }
  return -1;
}

TEST(Predict, ARingOnOneHost) {
  const Cluster cluster = simple_cluster(1, 4);
  // The ring has 6 steps, and sends 2 * 3/4 of 1e6 bytes at 1e5 bytes/us.
  EXPECT_DOUBLE_EQ(time_of(cluster, Collective::all_reduce, 1e6, "ring"), 10 + 1.4 * 6 + 15);
  EXPECT_DOUBLE_EQ(time_of(cluster, Collective::all_gather, 1e6, "ring"), 10 + 3 + 7.5);
  EXPECT_DOUBLE_EQ(time_of(cluster, Collective::reduce_scatter, 1e6, "ring"), 10 + 3 + 7.5);
  EXPECT_DOUBLE_EQ(time_of(cluster, Collective::broadcast, 1e6, "ring"), 10 + 3 + 10);
  EXPECT_EQ(time_of(cluster, Collective::all_reduce, 1e6, "tree"), -1) << "one host";
}

TEST(Predict, ARingOverHostsUsesAllCardsOfAHost) {
  const Cluster cluster = simple_cluster(2, 4);
  // The ring has 14 steps, of which 2 in 8 are between hosts, and sends 2 * 7/8 of the bytes at 5e4
  // bytes/us.
  EXPECT_DOUBLE_EQ(time_of(cluster, Collective::all_reduce, 1e6, "ring"),
                   10 + 1.4 * (10.5 * 1 + 3.5 * 3) + 35);
}

TEST(Predict, ATreeIsAsDeepAsTheTreeOfHosts) {
  const Cluster cluster = simple_cluster(8, 4);
  EXPECT_NEAR(time_of(cluster, Collective::all_reduce, 0, "tree"), 10 + 2 * (3 * 1 + 3 * 3), 1e-9);
}

TEST(Predict, ASwitchSums) {
  Cluster cluster = simple_cluster(1, 4);
  cluster.sums_GBps = 100;
  cluster.sums_us = 20;
  EXPECT_DOUBLE_EQ(time_of(cluster, Collective::all_reduce, 4e6, "switch"), 10 + 20 + 50);
  cluster.hosts = 2;
  // Between hosts, 2 * 1/2 of the bytes are sent at 0.85 * 5e4 bytes/us, which takes longer than
  // inside a host.
  EXPECT_DOUBLE_EQ(time_of(cluster, Collective::all_reduce, 4e6, "switch"),
                   10 + 20 + 2 * 3 + 4e6 / (0.85 * 5e4));
  cluster.hosts = 1024;
  cluster.sums_between = true;
  EXPECT_DOUBLE_EQ(time_of(cluster, Collective::all_reduce, 4e6, "switch"),
                   10 + 20 + 2 * 3 + 4e6 / (0.85 * 5e4))
      << "a switch between hosts adds up at one place";
}

TEST(Predict, AllToAllSendsToEachOtherGpu) {
  const Cluster cluster = simple_cluster(2, 4);
  // There are 3 peers on the host and 4 on the other. Each GPU sends 4 of its 8 parts of 8e5 bytes
  // to the other host, over a quarter of the cards.
  EXPECT_DOUBLE_EQ(time_of(cluster, Collective::all_to_all, 8e5, "direct"),
                   10 + 3 * 2 + 4 * 4 + 4e5 / 12500);
}

TEST(Predict, OneGpuTakesALaunch) {
  for (const Collective c : {Collective::all_reduce, Collective::all_gather, Collective::broadcast,
                             Collective::all_to_all, Collective::gather, Collective::barrier}) {
    EXPECT_DOUBLE_EQ(predict(simple_cluster(1, 1), c, 1e6).time_us, 10) << name(c);
  }
}

// For any cluster, neither more bytes nor more hosts nor a slower network ever take less time.
TEST(Predict, MoreWorkNeverTakesLessTime) {
  for (const std::string& system : cluster_names()) {
    for (const Collective c :
         {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
          Collective::broadcast, Collective::all_to_all, Collective::gather}) {
      SCOPED_TRACE(system + ", " + std::string(name(c)));
      for (const int hosts : {1, 2, 3, 8, 1000}) {
        Cluster cluster = load_cluster(system + ":" + std::to_string(hosts));
        double before = 0;
        for (double bytes = 8; bytes < 1e12; bytes *= 2) {
          const ClusterPrediction p = predict(cluster, c, bytes);
          EXPECT_GE(p.time_us, before);
          EXPECT_LT(p.interval_us.low, p.time_us);
          EXPECT_GT(p.interval_us.high, p.time_us);
          EXPECT_TRUE(std::ranges::is_sorted(p.candidates, {}, &ClusterCandidate::time_us));
          before = p.time_us;
        }
        Cluster slower = cluster;
        slower.between.GBps /= 2;
        EXPECT_GE(predict(slower, c, 1 << 30).time_us, predict(cluster, c, 1 << 30).time_us);
      }
    }
  }
}

TEST(Predict, AMillionGpusAreNoMoreWorkThanEight) {
  const ClusterPrediction p =
      predict(load_cluster("dgx-h100:125000"), Collective::all_reduce, 64 << 20);
  EXPECT_TRUE(std::isfinite(p.time_us));
  EXPECT_EQ(p.candidates.size(), 7u) << "rings and trees by three protocols, and the switch";
}

TEST(Predict, IntervalsAreThoseOfTheSize) {
  Cluster cluster = simple_cluster(1, 4);
  cluster.errors = {{0.3, 0.2, 0.1}};
  const auto factor = [&](double bytes) {
    const ClusterPrediction p = predict(cluster, Collective::all_reduce, bytes);
    EXPECT_NEAR(p.time_us / p.interval_us.low, p.interval_us.high / p.time_us, 1e-9);
    return std::log(p.interval_us.high / p.time_us) / 1.645;
  };
  EXPECT_NEAR(factor(1024), 0.3, 1e-9);
  EXPECT_NEAR(factor(1 << 20), 0.2, 1e-9);
  EXPECT_NEAR(factor(256 << 20), 0.1, 1e-9);
}

TEST(Predict, RefusesAlgorithmsThatNcclLacks) {
  try {
    predict(simple_cluster(1, 4), Collective::scan, 8);
    FAIL() << "it was predicted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
  }
}

}  // namespace
}  // namespace tutti
