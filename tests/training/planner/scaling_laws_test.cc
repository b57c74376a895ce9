// Tests optimal models for a budget against a published table, and the fit of a law to losses that
// were computed from it.
#include "training/planner/scaling_laws.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "base/error.h"

namespace tutti::training::planner {
namespace {

using ::testing::HasSubstr;

// For C = 4.3e23, each row has G, N and D (N and D in 1e9) as found by one approach. The table is
// that of the course "are we optimal?".
TEST(ScalingLaws, GiveTheCoursesTable) {
  constexpr std::array<std::array<double, 3>, 7> kTable = {{{1.3447, 28.2, 2540.6},
                                                            {0.9846, 263.6, 271.9},
                                                            {0.9814, 262.7, 272.8},
                                                            {1.0452, 165.3, 433.5},
                                                            {1.0552, 166.9, 429.4},
                                                            {1.2686, 41.4, 1731.9},
                                                            {1.3350, 43.5, 1645.8}}};
  ASSERT_EQ(chinchilla().size(), kTable.size());
  for (size_t i = 0; i < kTable.size(); ++i) {
    const Optimum best = optimum(chinchilla()[i], 4.3e23);
    EXPECT_NEAR(best.G, kTable[i][0], 1e-4) << i;
    EXPECT_NEAR(best.parameters / 1e9, kTable[i][1], 0.06) << i;
    EXPECT_NEAR(best.tokens / 1e9, kTable[i][2], 0.6) << i;
    EXPECT_NEAR(6 * best.parameters * best.tokens, 4.3e23, 1e18);
  }
}

// No other division of the operations into parameters and tokens has a smaller loss.
TEST(ScalingLaws, OptimaAreOptimal) {
  for (const ScalingLaw& law : chinchilla()) {
    const double C = 1e21;
    const Optimum best = optimum(law, C);
    const double least = law.loss(best.parameters, best.tokens);
    for (const double factor : {0.5, 0.9, 1.1, 2.0}) {
      EXPECT_GT(law.loss(best.parameters * factor, best.tokens / factor), least) << law.name;
    }
  }
}

TEST(ScalingLaws, KaplanLawsMatchThePublishedOnes) {
  const Optimum one = kaplan(kPetaFlopDay);
  EXPECT_DOUBLE_EQ(one.parameters, 1.3e9);
  EXPECT_DOUBLE_EQ(one.tokens, 2e10);
  EXPECT_NEAR(kaplan(1000 * kPetaFlopDay).parameters / one.parameters, 154.9, 0.1);
}

TEST(ScalingLaws, FitRecoversTheLaw) {
  const ScalingLaw& law = chinchilla()[0];
  std::vector<ScalingRun> runs;
  for (const double N : {7e7, 3e8, 1e9, 4e9, 1.6e10}) {
    for (const double D : {1e9, 5e9, 2e10, 1e11, 4e11}) runs.push_back({N, D, law.loss(N, D)});
  }
  const FittedLaw fitted = fit_scaling_law(runs);
  EXPECT_LT(fitted.error, 1e-3);
  EXPECT_NEAR(fitted.law.alpha, law.alpha, 0.01);
  EXPECT_NEAR(fitted.law.beta, law.beta, 0.01);
  EXPECT_NEAR(fitted.law.E, law.E, 0.05);
  EXPECT_LE(fitted.low.alpha, fitted.law.alpha + 1e-6);
  EXPECT_GE(fitted.high.alpha, fitted.law.alpha - 1e-6);
  EXPECT_NEAR(parse_scaling_law(to_json(fitted.law)).alpha, fitted.law.alpha, 1e-12);
}

template <typename Run>
std::string error_of(const Run& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ScalingLaws, RefuseTablesThatDoNotDetermineALaw) {
  EXPECT_THAT(error_of([] { read_scaling_runs("N,D\n1,2\n", "t"); }), HasSubstr("no column 'L'"));
  EXPECT_THAT(error_of([] { read_scaling_runs("N,D,L\n1,2,x\n", "t"); }), HasSubstr("line 2: 'x'"));
  EXPECT_THAT(error_of([] { read_scaling_runs("", "t"); }), HasSubstr("empty"));
  EXPECT_THAT(error_of([] { fit_scaling_law({{1, 2, 3}, {1, 2, 3}}); }), HasSubstr("2 runs"));
}

}  // namespace
}  // namespace tutti::training::planner
