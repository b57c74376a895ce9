#include "training/core/parameters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tutti::training {
namespace {

std::vector<float> initial(const ParameterSpec& spec, uint64_t seed, int64_t first, size_t count) {
  std::vector<float> values(count);
  initial_values(spec, seed, first, values);
  return values;
}

TEST(ParameterTableTest, SpecsAndHandles) {
  ParameterTable table;
  const Parameter* bias = table.add("a.bias", {3}, {});
  table.begin_unit(2);
  const Parameter* weight = table.add("b.weight", {4, 3, 2}, {Initial::Kind::normal, 0.1});
  for (int i = 0; i < 100; ++i) table.add("more." + std::to_string(i), {1}, {});
  ASSERT_EQ(table.size(), 102);
  const ParameterSpec& first = table.specs()[0];
  const ParameterSpec& second = table.specs()[1];
  EXPECT_EQ(first.local_rows(), 1);
  EXPECT_EQ(first.count(), 3);
  EXPECT_FALSE(first.decays);
  EXPECT_EQ(first.unit, 0);
  EXPECT_EQ(second.local_rows(), 4);
  EXPECT_EQ(second.count(), 24);
  EXPECT_TRUE(second.decays);
  EXPECT_EQ(second.unit, 2);
  EXPECT_EQ(&table.at(0), bias);  // handles stay valid when the table grows
  EXPECT_EQ(&table.at(1), weight);
  EXPECT_TRUE(weight->value.empty());
}

TEST(ParameterTableTest, ScalarsAndEmptyOnes) {
  ParameterTable table;
  table.add("scalar", {}, {});
  table.add("none", {0, 5}, {});
  EXPECT_EQ(table.specs()[0].count(), 1);
  EXPECT_EQ(table.specs()[1].count(), 0);
}

TEST(ParameterTableTest, UnitsUseTheirOwnAndSharedOnes) {
  ParameterTable table;
  table.begin_unit(0);
  const Parameter* shared = table.add("wte", {2, 2}, {});
  table.add("wpe", {2, 2}, {});
  table.begin_unit(2);
  table.add("ln", {2}, {});
  table.share(shared);
  EXPECT_EQ(table.used_by(0), (std::vector<int>{0, 1}));
  EXPECT_EQ(table.used_by(1), std::vector<int>{});
  EXPECT_EQ(table.used_by(2), (std::vector<int>{2, 0}));
  EXPECT_EQ(table.used_by(3), std::vector<int>{});
  EXPECT_EQ(table.used_by(-1), std::vector<int>{});
}

TEST(ParameterTableTest, RefusesAndStaysAsItWas) {
  ParameterTable table;
  table.add("a", {2}, {});
  EXPECT_THROW(table.add("a", {3}, {}), Error);
  EXPECT_THROW(table.add("b", {-1, 3}, {}), Error);
  EXPECT_THROW(table.add("b", {std::numeric_limits<int64_t>::max(), 2}, {}), Error);
  EXPECT_EQ(table.size(), 1);
  EXPECT_NO_THROW(table.add("b", {3}, {}));
}

TEST(InitialValuesTest, Constants) {
  const ParameterSpec spec{"n", {9}, {Initial::Kind::constant, 1.5}};
  EXPECT_EQ(initial(spec, 1, 4, 5), std::vector<float>(5, 1.5f));
}

// Any part of the initial values equals the same part of the whole parameter.
TEST(InitialValuesTest, PartsEqualTheWhole) {
  for (const Initial::Kind kind : {Initial::Kind::normal, Initial::Kind::uniform}) {
    const ParameterSpec spec{"n", {101}, {kind, 0.02}};
    const std::vector<float> whole = initial(spec, 5, 0, 101);
    for (const int64_t first : {0, 1, 2, 37, 100}) {
      for (const int64_t count : {0, 1, 2, 7}) {
        if (first + count > 101) continue;
        const auto begin = whole.begin() + first;
        EXPECT_EQ(initial(spec, 5, first, static_cast<size_t>(count)),
                  std::vector<float>(begin, begin + count));
      }
    }
  }
}

// A rank's elements equal those of the whole parameter, wherever they are in its memory.
TEST(InitialValuesTest, SlicesEqualThoseOfTheWhole) {
  const Initial normal{Initial::Kind::normal, 1};
  const std::vector<float> whole = initial({"n", {12, 5}, normal}, 5, 0, 60);
  for (int rank = 0; rank < 2; ++rank) {
    MeshPlace place;
    place.sizes[static_cast<size_t>(Axis::tensor)] = 2;
    place.places[static_cast<size_t>(Axis::tensor)] = rank;
    ParameterTable table(place);
    table.add("n", {12, 5}, normal, {.cuts = {{Axis::tensor, 0, {8, 2, 2}}}});
    const ParameterSpec& spec = table.specs()[0];
    EXPECT_EQ(spec.count(), 60);
    EXPECT_EQ(spec.local_count(), 30);
    EXPECT_EQ(spec.local_rows(), 6);
    const int rows[2][6] = {{0, 1, 2, 3, 8, 10}, {4, 5, 6, 7, 9, 11}};
    const std::vector<float> own = initial(spec, 5, 0, 30);
    for (size_t i = 0; i < own.size(); ++i) {
      EXPECT_EQ(own[i], whole[static_cast<size_t>(rows[rank][i / 5]) * 5 + i % 5]) << i;
    }
    EXPECT_EQ(initial(spec, 5, 17, 9), std::vector<float>(own.begin() + 17, own.begin() + 26));
    EXPECT_THROW(table.add("odd", {3}, normal, {.cuts = {{Axis::tensor, 1}}}), Error);
    EXPECT_EQ(table.size(), 1);
  }
}

TEST(InitialValuesTest, NamesAndSeedsDiffer) {
  const ParameterSpec a{"h.0.w", {64}, {Initial::Kind::normal, 1}};
  const ParameterSpec b{"h.1.w", {64}, {Initial::Kind::normal, 1}};
  const std::vector<float> base = initial(a, 5, 0, 64), name = initial(b, 5, 0, 64);
  const std::vector<float> seed = initial(a, 6, 0, 64);
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_NE(base[i], name[i]);
    EXPECT_NE(base[i], seed[i]);
  }
}

// Checks mean, deviation, skew and tails of 200000 values, within about 5 standard errors.
TEST(InitialValuesTest, NormalMoments) {
  constexpr size_t kCount = 200000;
  const ParameterSpec spec{"n", {kCount}, {Initial::Kind::normal, 0.5}};
  double sum = 0, squares = 0, cubes = 0, beyond = 0, neighbours = 0;
  const std::vector<float> values = initial(spec, 3, 0, kCount);
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_TRUE(std::isfinite(values[i]));
    const double z = static_cast<double>(values[i]) / 0.5;
    sum += z;
    squares += z * z;
    cubes += z * z * z;
    beyond += std::abs(z) > 1.959964 ? 1 : 0;
    if (i > 0) neighbours += z * static_cast<double>(values[i - 1]) / 0.5;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.012);
  EXPECT_NEAR(squares / kCount, 1, 0.016);
  EXPECT_NEAR(cubes / kCount, 0, 0.045);
  EXPECT_NEAR(beyond / kCount, 0.05, 0.0025);
  // Neighbours, which are made in pairs, are independent.
  EXPECT_NEAR(neighbours / kCount, 0, 0.012);
}

TEST(InitialValuesTest, UniformFillsItsRange) {
  const ParameterSpec spec{"n", {10000}, {Initial::Kind::uniform, 0.25}};
  float least = 1, largest = -1;
  double sum = 0;
  for (const float value : initial(spec, 3, 0, 10000)) {
    least = std::min(least, value);
    largest = std::max(largest, value);
    sum += static_cast<double>(value);
  }
  EXPECT_GE(least, -0.25f);
  EXPECT_LT(largest, 0.25f);
  EXPECT_LT(least, -0.249f);
  EXPECT_GT(largest, 0.249f);
  EXPECT_NEAR(sum / 10000, 0, 0.008);
}

}  // namespace
}  // namespace tutti::training
