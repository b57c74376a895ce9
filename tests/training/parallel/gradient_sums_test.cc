// Tests the order in which deterministic mode sums gradients.
#include "training/parallel/gradient_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "training/core/slices.h"

namespace tutti::training {
namespace {

// Returns terms whose sum depends on the order.
float number(int i) { return 1.0F / static_cast<float>(3 + i * i % 101); }

TEST(GradientTree, AllOrdersGiveOneTree) {
  int allocations = 0;
  const GradientTree::Allocate allocate = [&](size_t bytes) {
    ++allocations;
    return std::make_shared<std::byte[]>(bytes);
  };
  for (int count = 1; count <= 33; ++count) {
    SCOPED_TRACE(count);
    GradientTree tree;
    allocations = 0;
    std::vector<float> gradient(2);
    for (int step = 0; step < 2; ++step) {
      std::vector<float> expected;
      std::ranges::fill(gradient, 0.0F);
      tree.begin_step(count);
      for (int i = 0; i < count; ++i) {
        EXPECT_EQ(gradient[0], 0);
        expected.push_back(number(i + step));
        gradient = {number(i + step), -number(i + step)};
        tree.end_micro_batch(tensor_at(gradient.data(), DType::f32, 1, 2), allocate);
      }
      add_up_in_order(count, [&](int into, int term) {
        expected[static_cast<size_t>(into)] += expected[static_cast<size_t>(term)];
      });
      EXPECT_EQ(gradient[0], expected[0]);
      EXPECT_EQ(gradient[1], -expected[0]);
    }
    EXPECT_EQ(tree.levels(), GradientTree::levels(count));
    EXPECT_EQ(allocations, tree.levels());
  }
}

}  // namespace
}  // namespace tutti::training
