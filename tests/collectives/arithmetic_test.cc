// Means and scaled inputs are part of the programs' steps, and proved with them.
#include "collectives/program/arithmetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "collectives/program/algorithm.h"
#include "collectives/proof/verify.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

TEST(WithArithmetic, EveryAlgorithmIsRightAndKeepsItsGrade) {
  int proved = 0;
  for (const Collective collective : kCollectivesWithAlgorithms) {
    if (!reduces(collective)) continue;
    for (const Algorithm* algorithm : algorithms_for(collective)) {
      for (int ranks = 1; ranks <= 16; ++ranks) {
        for (int root = 0; root < (has_root(collective) ? ranks : 1); ++root) {
          const Shape shape{.ranks = ranks, .root = root};
          if (!algorithm->supports(shape).empty()) continue;
          const Verdict plain = verify(*algorithm, shape);
          for (const Arithmetic arithmetic : {Arithmetic::means, Arithmetic::scaled}) {
            const Verdict verdict = verify(*algorithm, shape, arithmetic);
            EXPECT_EQ(verdict.problem, "") << algorithm->name << " on " << ranks << " ranks";
            EXPECT_EQ(verdict.grade, plain.grade) << algorithm->name << " on " << ranks << " ranks";
            ++proved;
          }
        }
      }
    }
  }
  EXPECT_GT(proved, 500);
}

}  // namespace
}  // namespace tutti
