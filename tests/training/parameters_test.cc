#include "training/parameters.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "base/error.h"

namespace tutti::training {
namespace {

TEST(LayoutTest, AlignsEachParameterAndPadsTheEnd) {
  const ParameterLayout layout =
      make_layout({{"a", {3, 5}}, {"b", {16}}, {"none", {0, 7}}, {"c", {}}});
  ASSERT_EQ(layout.slots.size(), 4u);
  EXPECT_EQ(layout.slots[0].offset, 0u);
  EXPECT_EQ(layout.slots[0].count, 15u);
  EXPECT_EQ(layout.slots[1].offset, 16u);
  EXPECT_EQ(layout.slots[2].offset, 32u);
  EXPECT_EQ(layout.slots[2].count, 0u);
  EXPECT_EQ(layout.slots[3].offset, 32u);
  EXPECT_EQ(layout.slots[3].count, 1u);  // a scalar
  EXPECT_EQ(layout.size, 48u);
  EXPECT_EQ(layout.parameter_count(), 32u);
  EXPECT_TRUE(layout.slots[0].is_matrix());
  EXPECT_FALSE(layout.slots[1].is_matrix());
}

TEST(LayoutTest, FindsByName) {
  const ParameterLayout layout = make_layout({{"a", {3}}, {"b", {4}}});
  EXPECT_EQ(layout.find("b").offset, 16u);
  EXPECT_THROW(layout.find("c"), Error);
}

TEST(LayoutTest, RefusesDuplicatesAndImpossibleShapes) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max() / 4;
  EXPECT_THROW(make_layout({{"a", {3}}, {"a", {4}}}), Error);
  EXPECT_THROW(make_layout({{"a", {3, -1}}}), Error);
  EXPECT_THROW(make_layout({{"a", {kHuge, kHuge}}}), Error);
}

TEST(ParametersTest, ViewsShareTheFlatArrays) {
  Parameters parameters(make_layout({{"a", {3}}, {"b", {2, 2}}}));
  const Parameter b = parameters.at(1);
  ASSERT_EQ(b.value.size(), 4u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.value.data()) % kParameterAlignment, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.gradient.data()) % kParameterAlignment, 0u);
  b.value[1] = 7;
  b.gradient[3] = 9;
  EXPECT_EQ(parameters.values()[17], 7);
  EXPECT_EQ(parameters.gradients()[19], 9);
  parameters.zero_gradients();
  EXPECT_EQ(b.gradient[3], 0);
  EXPECT_EQ(b.value[1], 7);
}

}  // namespace
}  // namespace tutti::training
