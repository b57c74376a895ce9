// Tests properties that every layout has, on random lists of parameters.
#include "training/core/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {
namespace {

std::vector<ParameterSpec> random_specs(std::mt19937& random) {
  const auto below = [&](uint32_t bound) { return static_cast<int64_t>(random() % bound); };
  std::vector<ParameterSpec> specs;
  const int64_t count = below(20);
  int unit = 0;
  for (int64_t i = 0; i < count; ++i) {
    unit += static_cast<int>(below(3)) / 2;
    std::vector<int64_t> shape = {below(70)};  // 0: empty
    if (below(2) == 0) shape.push_back(1 + below(70));
    if (below(8) == 0) shape = {kAlignment * (1 + below(3))};
    specs.push_back({cat("p.", i), shape, {}, unit});
  }
  return specs;
}

void expect_slots_in_backward_order(const std::vector<ParameterSpec>& specs, const Layout& layout) {
  ASSERT_EQ(layout.slots.size(), specs.size());
  std::vector<int> order;
  int64_t offset = 0;
  for (size_t b = 0; b < layout.buckets.size(); ++b) {
    const Bucket& bucket = layout.buckets[b];
    EXPECT_EQ(bucket.offset, offset);
    EXPECT_EQ(bucket.size % (bucket.ranks * kAlignment), 0);
    int64_t end = 0;
    for (const int parameter : bucket.parameters) {
      const Slot& slot = layout.slots[static_cast<size_t>(parameter)];
      EXPECT_EQ(slot.parameter, parameter);
      EXPECT_EQ(slot.bucket, static_cast<int>(b));
      EXPECT_EQ(slot.count, specs[static_cast<size_t>(parameter)].count());
      EXPECT_EQ(slot.offset % kAlignment, 0);
      EXPECT_GE(slot.offset, end);
      EXPECT_LT(slot.offset, end + kAlignment);  // there is no larger gap than alignment needs
      end = slot.offset + slot.count;
      order.push_back(parameter);
    }
    EXPECT_LE(end, bucket.size);
    EXPECT_LT(bucket.size, end + (bucket.ranks + 1) * kAlignment);
    offset += bucket.size;
  }
  EXPECT_EQ(layout.size, offset);
  std::vector<int> backward(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) backward[i] = static_cast<int>(specs.size() - 1 - i);
  EXPECT_EQ(order, backward);
}

// Expects each element of each parameter to have one owner, at one place of the owner's arrays. The
// place follows from the division of the bucket into equal parts.
void expect_owned_once(const std::vector<ParameterSpec>& specs, const Layout& layout, int ranks) {
  // Parameter -> {first, count} of each range.
  std::map<int, std::vector<std::pair<int64_t, int64_t>>> ranges;
  for (int rank = 0; rank < ranks; ++rank) {
    int64_t end = 0;
    std::pair<int, int64_t> last{-1, 0};
    for (const Piece& piece : layout.pieces({rank})) {
      const Slot& slot = layout.slots[static_cast<size_t>(piece.parameter)];
      const int64_t shard = layout.buckets[static_cast<size_t>(piece.bucket)].shard_size();
      EXPECT_GT(piece.count, 0);
      EXPECT_EQ(piece.bucket, slot.bucket);
      EXPECT_EQ(piece.bucket_offset, slot.offset + piece.first);
      EXPECT_EQ(piece.first % kAlignment, 0);
      EXPECT_EQ(piece.owned_offset % kAlignment, 0);
      EXPECT_GE(piece.bucket_offset, rank * shard);
      EXPECT_LE(piece.bucket_offset + piece.count, (rank + 1) * shard);
      EXPECT_EQ(piece.owned_offset - layout.buckets[static_cast<size_t>(piece.bucket)].owned_offset,
                piece.bucket_offset - rank * shard);
      // Pieces are in the order of their positions.
      EXPECT_LT(last, std::pair(piece.bucket, piece.bucket_offset));
      EXPECT_GE(piece.owned_offset, end);
      last = {piece.bucket, piece.bucket_offset};
      end = piece.owned_offset + piece.count;
      ranges[piece.parameter].emplace_back(piece.first, piece.count);
    }
    EXPECT_LE(end, layout.owned_size);
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    int64_t next = 0;  // the parts of a parameter are in the order of ranks
    for (const auto& [first, count] : ranges[static_cast<int>(i)]) {
      EXPECT_EQ(first, next);
      next = first + count;
    }
    EXPECT_EQ(next, specs[i].count());
  }
}

void expect_bucket_sizes(const std::vector<ParameterSpec>& specs, const Layout& layout,
                         const LayoutOptions& options) {
  for (size_t b = 0; b < layout.buckets.size(); ++b) {
    const std::vector<int>& parameters = layout.buckets[b].parameters;
    ASSERT_FALSE(parameters.empty());
    const auto unit_of = [&](int parameter) { return specs[static_cast<size_t>(parameter)].unit; };
    if (options.bucket_per_unit) {
      for (const int parameter : parameters) {
        EXPECT_EQ(unit_of(parameter), unit_of(parameters.front()));
      }
      if (b > 0) {
        EXPECT_NE(unit_of(parameters.front()), unit_of(layout.buckets[b - 1].parameters.front()));
      }
      continue;
    }
    // Bucket b was closed as soon as it was full.
    const int64_t limit = b == 0 ? options.first_bucket_elements : options.bucket_elements;
    const Slot& last = layout.slots[static_cast<size_t>(parameters.back())];
    const int64_t filled = (last.offset + last.count + kAlignment - 1) / kAlignment * kAlignment;
    if (parameters.size() > 1) {
      EXPECT_LT(last.offset, limit);
    }
    if (b + 1 < layout.buckets.size()) {
      EXPECT_GE(filled, limit);
    }
  }
}

TEST(LayoutTest, Properties) {
  std::mt19937 random(20240601);
  for (int trial = 0; trial < 300; ++trial) {
    const std::vector<ParameterSpec> specs = random_specs(random);
    for (const int ranks : {1, 2, 3, 4, 5, 7, 8, 16}) {
      for (const int64_t elements : {1, 100, 1000, 1 << 20}) {
        for (const bool per_unit : {false, true}) {
          const LayoutOptions options{{ranks}, elements, 1 + elements / 2, per_unit};
          const Layout layout = make_layout(specs, options);
          EXPECT_EQ(layout.owned_size * ranks, layout.size);
          expect_slots_in_backward_order(specs, layout);
          expect_owned_once(specs, layout, ranks);
          expect_bucket_sizes(specs, layout, options);
          if (HasFailure()) FAIL() << "trial " << trial << ", " << ranks << " ranks";
        }
      }
    }
  }
}

// The example in the comment of layout.h.
TEST(LayoutTest, AnExample) {
  const std::vector<ParameterSpec> specs = {{"w", {10, 10}}, {"b", {10}}};
  const Layout layout = make_layout(specs, {.ranks = {2}});
  ASSERT_EQ(layout.buckets.size(), 1u);
  EXPECT_EQ(layout.buckets[0].size, 192);  // 32 + 128, rounded up to a multiple of 64
  EXPECT_EQ(layout.slots[1].offset, 0);
  EXPECT_EQ(layout.slots[0].offset, 32);
  const std::vector<Piece> first = layout.pieces({0}), second = layout.pieces({1});
  ASSERT_EQ(first.size(), 2u);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(first[1].parameter, 0);
  EXPECT_EQ(first[1].count, 64);
  EXPECT_EQ(first[1].owned_offset, 32);
  EXPECT_EQ(second[0].first, 64);
  EXPECT_EQ(second[0].count, 36);
  EXPECT_EQ(second[0].owned_offset, 0);
}

// Gradients of normalizations are summed over 4 ranks, those of matrices over 2. The two groups
// have separate buckets, in the order in which backward completes them.
TEST(LayoutTest, GroupsHaveBucketsOfTheirOwn) {
  std::vector<ParameterSpec> specs;
  std::vector<int> groups;
  for (int unit = 0; unit < 3; ++unit) {
    specs.push_back({.name = "norm", .shape = {64}, .initial = {}, .unit = unit});
    specs.push_back({.name = "matrix", .shape = {40, 10}, .initial = {}, .unit = unit});
    groups.insert(groups.end(), {1, 0});
  }
  const Layout layout = make_layout(
      specs,
      {.ranks = {2, 4}, .bucket_elements = 150, .first_bucket_elements = 150, .groups = groups});
  std::vector<std::vector<int>> found;
  for (const Bucket& bucket : layout.buckets) {
    EXPECT_EQ(bucket.ranks, bucket.group == 0 ? 2 : 4);
    found.push_back(bucket.parameters);
  }
  EXPECT_EQ(found, (std::vector<std::vector<int>>{{5}, {3}, {1}, {4, 2, 0}}));
  EXPECT_EQ(layout.size, 3 * 448 + 256);
  EXPECT_EQ(layout.owned_size, 3 * 224 + 64);
  std::vector<int64_t> elements(specs.size());
  // Group 0 has 2 ranks, so that each of its pieces is counted twice.
  for (int rank = 0; rank < 4; ++rank) {
    for (const Piece& piece : layout.pieces({rank % 2, rank})) {
      elements[static_cast<size_t>(piece.parameter)] += piece.count;
    }
  }
  EXPECT_EQ(elements, (std::vector<int64_t>{64, 800, 64, 800, 64, 800}));
}

TEST(LayoutTest, NoParameters) {
  const Layout layout = make_layout({}, {.ranks = {3}});
  EXPECT_EQ(layout.size, 0);
  EXPECT_TRUE(layout.buckets.empty());
  EXPECT_TRUE(layout.pieces({2}).empty());
}

TEST(LayoutTest, RefusesOptionsThatMakeNoSense) {
  for (const LayoutOptions& options :
       {LayoutOptions{.ranks = {0}}, LayoutOptions{.ranks = {}},
        LayoutOptions{.bucket_elements = 0}, LayoutOptions{.first_bucket_elements = -1}}) {
    try {
      make_layout({}, options);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    }
  }
}

// --- groups ---

ParameterSpec placed(int64_t rows, const Placement& placement, int expert_ranks = 1) {
  return {.name = "p",
          .shape = {rows, 4},
          .placement = placement,
          .mesh = {.sizes = {4, 1, 1, expert_ranks, 2, 1}}};
}

TEST(ParameterGroups, EachGroupIsAPartialSumOverItsAxes) {
  const std::vector<ParameterSpec> specs = {placed(8, {}), placed(8, {.cuts = {{Axis::tensor, 0}}}),
                                            placed(8, {.partial = {Axis::tensor}}),
                                            placed(8, {.owner = {{Axis::expert}, 0}})};
  const GroupTable table = parameter_groups(specs, {0, 1, 2, 3});
  EXPECT_EQ(table.group_of, (std::vector<int>{0, 0, 1, 0}));
  EXPECT_EQ(table.axes, (std::vector<AxisSet>{kBatchAxes, kBatchAxes | AxisSet{Axis::tensor}}));
  EXPECT_EQ(parameter_groups(specs, {0, 1}).axes.size(), 1u);
}

TEST(ParameterGroups, ExpertsAreSummedOverTheRanksThatHaveThem) {
  const std::vector<ParameterSpec> specs = {
      placed(8, {}, 2), placed(8, {.owner = {{Axis::expert}, 1}}, 2),
      placed(8, {.cuts = {{Axis::tensor, 0}}, .owner = {{Axis::expert}, 0}}, 2)};
  const GroupTable table = parameter_groups(specs, {0, 1, 2});
  EXPECT_EQ(table.group_of, (std::vector<int>{0, 1, 1}));
  EXPECT_EQ(table.axes,
            (std::vector<AxisSet>{kBatchAxes, {Axis::context, Axis::spatial, Axis::data}}));
}

// Ranks have different numbers of experts, but the buckets of the other parameters are the same.
TEST(ParameterGroups, DoNotChangeEachOthersBuckets) {
  std::vector<int64_t> sizes;
  for (const int number : {0, 1}) {
    std::vector<ParameterSpec> specs;
    for (int i = 0; i < 4; ++i) {
      specs.push_back(placed(20, {}, 2));
      specs.push_back(placed(30, {.owner = {{Axis::expert}, i == 0 ? 0 : 1}}, 2));
      specs.back().mesh.places[static_cast<size_t>(Axis::expert)] = number;
    }
    GroupTable table = parameter_groups(specs, {0, 1, 2, 3, 4, 5, 6, 7});
    const Layout layout = make_layout(specs, {.ranks = {1, 1},
                                              .bucket_elements = 100,
                                              .first_bucket_elements = 50,
                                              .groups = table.group_of});
    std::vector<int64_t> found;
    for (const Bucket& bucket : layout.buckets) {
      if (bucket.group == 0) found.push_back(bucket.size);
    }
    if (number == 0) sizes = found;
    EXPECT_EQ(found, sizes);
  }
}

// A parameter with its own bucket does not change the buckets of the parameters around it.
TEST(Layout, GivesParametersBucketsOfTheirOwn) {
  std::vector<ParameterSpec> specs;
  for (int i = 0; i < 5; ++i) specs.push_back({.name = "p", .shape = {40}});
  const auto buckets = [&](const std::vector<int>& alone) {
    std::vector<std::vector<int>> found;
    const Layout layout =
        make_layout(specs, {.bucket_elements = 120, .first_bucket_elements = 100, .alone = alone});
    for (const Bucket& bucket : layout.buckets) found.push_back(bucket.parameters);
    return found;
  };
  using Buckets = std::vector<std::vector<int>>;
  EXPECT_EQ(buckets({}), (Buckets{{4, 3}, {2, 1}, {0}}));
  EXPECT_EQ(buckets({2}), (Buckets{{4, 3}, {2}, {1, 0}}));
  EXPECT_EQ(buckets({4, 1}), (Buckets{{4}, {3, 2}, {1}, {0}}));
  EXPECT_EQ(buckets({3}), (Buckets{{3}, {4, 2}, {1, 0}}));
}

// Tensor ranks have different parts of the second parameter. The sums of the first parameter are
// therefore in buckets without the second one.
TEST(ParameterGroups, KeepCopiesApartFromWhatCannotBeCutEvenly) {
  const std::vector<ParameterSpec> specs = {placed(8, {}),
                                            placed(9, {.cuts = {{Axis::tensor, 0}}})};
  const GroupTable table = parameter_groups(specs, {0, 1});
  EXPECT_EQ(table.group_of, (std::vector<int>{1, 0}));
  EXPECT_EQ(table.axes, (std::vector<AxisSet>{kBatchAxes, kBatchAxes}));
}

}  // namespace
}  // namespace tutti::training
