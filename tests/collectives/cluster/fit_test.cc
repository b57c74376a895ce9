// Tests fits to figures that were computed from known parameters. They must find these parameters,
// as far as the figures determine them.
#include "collectives/cluster/fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "collectives/cluster/predict.h"

namespace tutti {
namespace {

std::vector<MeasuredCall> calls_on(Cluster cluster, Collective collective,
                                   const std::vector<int>& hosts, double noise) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  std::vector<MeasuredCall> calls;
  for (const int count : hosts) {
    cluster.hosts = count;
    for (double bytes = 8; bytes < 2e10; bytes *= 2) {
      const double us = predict(cluster, collective, bytes).time_us;
      calls.push_back(
          {collective, count, cluster.gpus, bytes, us * std::exp(noise * normal(random))});
    }
  }
  return calls;
}

TEST(Fit, FindsTheParametersBehindTheFigures) {
  Cluster made = load_cluster("8xA100 x 4, NVLink 300, IB 8x25");
  made.launch_us = 31;
  made.inside.GBps = 180;
  made.between.GBps = 90;
  made.between.step_us = {11, 16, 37};
  std::vector<MeasuredCall> calls = calls_on(made, Collective::all_reduce, {1, 2, 4}, 0);
  const Cluster fitted = fit(load_cluster("dgx-a100"), calls);
  for (const double error : mean_errors(fitted, calls)) EXPECT_LT(error, 0.03);
  EXPECT_NEAR(fitted.between.GBps / 90, 1, 0.03);
  EXPECT_NEAR(fitted.inside.GBps / 180, 1, 0.03);
  EXPECT_EQ(fitted.hosts, 4);
  EXPECT_EQ(fitted.gpus, 8);
}

TEST(Fit, PredictsCollectivesAndHostsThatWereNotMeasured) {
  Cluster made = load_cluster("8xH100 x 16, NVLink 450, RoCE 8x25");
  made.between.step_us = {9, 15, 33};
  const std::vector<MeasuredCall> calls = calls_on(made, Collective::all_reduce, {2, 4}, 0.05);
  const Cluster fitted = fit(load_cluster("dgx-h100"), calls);
  const auto errors = mean_errors(fitted, calls_on(made, Collective::all_gather, {16}, 0));
  for (const double error : errors) EXPECT_LT(error, 0.25);
}

TEST(Fit, AFewWildFiguresMoveLittle) {
  const Cluster made = load_cluster("8xA100 x 2, NVLink 300, IB 8x25");
  std::vector<MeasuredCall> calls = calls_on(made, Collective::all_gather, {2}, 0.02);
  const std::vector<MeasuredCall> clean = calls;
  calls[3].us *= 20;
  calls[20].us *= 10;
  for (const double error : mean_errors(fit(load_cluster("p4d"), calls), clean)) {
    EXPECT_LT(error, 0.06);
  }
}

TEST(Fit, IntervalsAreAsWideAsTheNoise) {
  const Cluster made = load_cluster("8xA100 x 2, NVLink 300, IB 8x25");
  const std::vector<int> many(20, 2);
  for (const double noise : {0.1, 0.3}) {
    const Cluster fitted =
        fit(load_cluster("dgx-a100"), calls_on(made, Collective::all_reduce, many, noise));
    for (const double error : fitted.errors.deviation) EXPECT_NEAR(error / noise, 1, 0.25);
  }
}

TEST(Fit, OneFigureChangesOnlyTheParametersItDetermines) {
  const Cluster prior = load_cluster("dgx-a100");
  const Cluster fitted = fit(
      prior, std::vector<MeasuredCall>{{Collective::all_reduce, 1, 8, 1e9, 1e9 * 1.75 / 120e3}});
  EXPECT_NEAR(fitted.inside.GBps, 120, 6);
  EXPECT_EQ(fitted.between.GBps, prior.between.GBps);
  EXPECT_EQ(fitted.between.step_us, prior.between.step_us);
}

}  // namespace
}  // namespace tutti
