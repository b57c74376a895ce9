// Tests which elements of a parameter a rank has. Every small shape is cut in every way, and each
// element is checked.
#include "training/core/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Shape = std::vector<int64_t>;

MeshPlace place_of(int tensor_ranks, int tensor_place, int expert_ranks = 1, int expert_place = 0) {
  MeshPlace place;
  place.sizes = {tensor_ranks, 1, 1, expert_ranks, 1, 1};
  place.places = {tensor_place, 0, 0, expert_place, 0, 0};
  return place;
}

// Returns the elements of the whole parameter that a slice contains, checked one by one.
std::vector<int64_t> elements_of(const Slice& slice) {
  const Shape& shape = slice.whole_shape();
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  std::vector<int64_t> elements;
  for (int64_t element = 0; element < count; ++element) {
    bool inside = true;
    int64_t left = element;
    for (size_t d = shape.size(); d-- > 0;) {
      const int64_t index = left % shape[d];
      left /= shape[d];
      inside = inside && std::ranges::any_of(slice.ranges()[d], [&](const Slice::Range& range) {
                 return range.begin <= index && index < range.end;
               });
    }
    if (inside) elements.push_back(element);
  }
  return elements;
}

void expect_right(const Slice& slice) {
  const std::vector<int64_t> expected = elements_of(slice);
  ASSERT_EQ(slice.count(), std::ssize(expected)) << to_text(slice);
  for (int64_t first = 0; first < slice.count(); ++first) {
    const Slice::Run run = slice.run_from(first);
    const auto at = expected.begin() + first;
    ASSERT_EQ(run.whole, *at) << to_text(slice) << " from " << first;
    ASSERT_GE(run.count, 1);
    ASSERT_LE(first + run.count, slice.count());
    for (int64_t i = 0; i < run.count; ++i) ASSERT_EQ(at[i], run.whole + i);
  }
  int64_t count = 1;
  for (const int64_t size : slice.whole_shape()) count *= size;
  for (int64_t element = 0; element <= count; ++element) {
    ASSERT_EQ(slice.count_before(element),
              std::ranges::lower_bound(expected, element) - expected.begin())
        << to_text(slice) << " before " << element;
  }
  std::vector<int64_t> visited;
  for_each_run(slice, 0, slice.count(), [&](const Slice::Run& run, int64_t at) {
    EXPECT_EQ(at, std::ssize(visited));
    for (int64_t i = 0; i < run.count; ++i) visited.push_back(run.whole + i);
  });
  EXPECT_EQ(visited, expected);
}

// Expects each element to be on exactly one of the ranks.
void expect_shared_out(const Shape& shape, const Placement& placement, int tensor, int expert) {
  SCOPED_TRACE(cat(tensor, " x ", expert, " ranks, ", placement.cuts.size(), " cuts"));
  std::vector<Slice> slices;
  std::vector<int64_t> all;
  for (int rank = 0; rank < tensor * expert; ++rank) {
    slices.push_back(
        slice_of(shape, placement, place_of(tensor, rank % tensor, expert, rank / tensor)));
    expect_right(slices.back());
    const std::vector<int64_t> own = elements_of(slices.back());
    all.insert(all.end(), own.begin(), own.end());
    for (int before = 0; before < rank; ++before) {
      EXPECT_FALSE(slices.back().overlaps(slices[static_cast<size_t>(before)]));
    }
    EXPECT_EQ(slices.back().overlaps(Slice(shape)), !own.empty());
    EXPECT_EQ(slices.back().is_whole(), slices.back() == Slice(shape));
  }
  std::ranges::sort(all);
  EXPECT_EQ(all, elements_of(Slice(shape)));
}

// Returns all ways to divide a size into up to three parts, each a multiple of the number of ranks.
std::vector<std::vector<int64_t>> parts_of(int64_t size, int64_t ranks) {
  std::vector<std::vector<int64_t>> all;
  if (size % ranks != 0) return all;
  all.push_back({});
  for (int64_t first = 0; first <= size; first += ranks) {
    all.push_back({first, size - first});
    for (int64_t second = ranks; first + second < size; second += ranks) {
      all.push_back({first, second, size - first - second});
    }
  }
  return all;
}

std::vector<Shape> small_shapes() {
  std::vector<Shape> shapes = {{}};
  for (const int64_t a : {0, 1, 2, 6}) {
    shapes.push_back({a});
    for (const int64_t b : {0, 1, 4, 6}) {
      shapes.push_back({a, b});
      for (const int64_t c : {1, 3, 6}) shapes.push_back({a, b, c});
    }
  }
  return shapes;
}

TEST(Placement, EveryCutOfEveryDimensionSharesTheElementsOut) {
  for (const Shape& shape : small_shapes()) {
    expect_shared_out(shape, {}, 1, 1);
    for (int dimension = 0; dimension < std::ssize(shape); ++dimension) {
      for (const int ranks : {1, 2, 3, 6}) {
        const int64_t size = shape[static_cast<size_t>(dimension)];
        for (const std::vector<int64_t>& parts : parts_of(size, ranks)) {
          expect_shared_out(shape, {.cuts = {{Axis::tensor, dimension, parts}}}, ranks, 1);
        }
      }
    }
  }
}

// One of the expert ranks has the parameter: cut over its tensor ranks, or whole on one of them.
TEST(Placement, OneRankMayHaveAllOfIt) {
  for (const int tensor : {1, 2}) {
    for (const int expert : {1, 2, 4}) {
      for (int owner = 0; owner < expert; ++owner) {
        const Placement placement{.cuts = {{Axis::tensor, 2, {4, 2}}},
                                  .owner = {{Axis::expert}, owner}};
        EXPECT_FALSE(placement.is_whole());
        expect_shared_out({4, 3, 6}, placement, tensor, expert);
      }
      for (int owner = 0; owner < tensor * expert; ++owner) {
        const Placement placement{.owner = {{Axis::tensor, Axis::expert}, owner}};
        expect_shared_out({6}, placement, tensor, expert);
      }
    }
  }
}

TEST(Placement, GradientsAreSummedAlongTheBatchUnlessOneRankHasThem) {
  EXPECT_EQ(Placement{}.summed_over(), kBatchAxes);
  EXPECT_EQ((Placement{.partial = {Axis::tensor}}).summed_over(),
            kBatchAxes | AxisSet{Axis::tensor});
  const Placement owned{.owner = {{Axis::tensor, Axis::expert}, 1}};
  EXPECT_EQ(owned.summed_over(), (AxisSet{Axis::context, Axis::spatial, Axis::data}));
}

// In GPT-2's c_attn, queries, keys and values are packed. With grouped queries, there are fewer
// keys.
TEST(Placement, PackedPartsAreCutEachByItself) {
  const Placement even{.cuts = {{Axis::tensor, 0, {4, 4, 4}}}};
  const Slice second = slice_of({12, 5}, even, place_of(2, 1));
  EXPECT_EQ(to_text(second), "2:4+6:8+10:12, 0:5");
  EXPECT_THAT(second.shape(), ElementsAre(6, 5));
  const Placement grouped{.cuts = {{Axis::tensor, 0, {8, 2, 2}}}};
  EXPECT_EQ(to_text(slice_of({12, 5}, grouped, place_of(2, 0))), "0:4+8:9+10:11, 0:5");
  EXPECT_EQ(to_text(slice_of({12, 5}, grouped, place_of(2, 1))), "4:8+9:10+11:12, 0:5");
  // With one rank, the slice is one range, however the parts are packed.
  EXPECT_EQ(slice_of({12, 5}, grouped, place_of(1, 0)), Slice({12, 5}));
}

TEST(Placement, RunsAreAsLongAsTheyCanBe) {
  const Slice rows = slice_of({8, 5}, {.cuts = {{Axis::tensor, 0}}}, place_of(2, 1));
  EXPECT_EQ(rows.run_from(0).whole, 20);
  EXPECT_EQ(rows.run_from(0).count, 20);
  EXPECT_EQ(rows.run_from(7).count, 13);
  const Slice columns = slice_of({8, 6}, {.cuts = {{Axis::tensor, 1}}}, place_of(2, 1));
  EXPECT_EQ(columns.run_from(0).whole, 3);
  EXPECT_EQ(columns.run_from(0).count, 3);
  EXPECT_EQ(Slice({8, 6}).run_from(5).count, 43);
}

// 7 rows are cut over 3 ranks, and packed parts of 5 and 1 over 2 ranks. The larger share is not
// always the first.
TEST(Placement, CutsNeedNotComeOutEven) {
  const Placement rows{.cuts = {{Axis::tensor, 0}}};
  int64_t all = 0;
  for (const auto& [rank, expected] : {std::pair(0, "0:2"), {1, "2:4"}, {2, "4:7"}}) {
    const Slice own = slice_of({7}, rows, place_of(3, rank));
    EXPECT_EQ(to_text(own), expected);
    all += own.count();
  }
  EXPECT_EQ(all, 7);
  const Placement packed{.cuts = {{Axis::tensor, 0, {5, 1}}}};
  EXPECT_EQ(to_text(slice_of({6}, packed, place_of(2, 0))), "0:2");
  EXPECT_EQ(to_text(slice_of({6}, packed, place_of(2, 1))), "2:6");
}

TEST(Placement, AFinerCutLiesInACoarserOne) {
  for (const int64_t count : {0, 1, 7, 8, 50257}) {
    for (int64_t place = 0; place < 4; ++place) {
      const Share coarse = even_share(count, place, 4);
      const Share first = even_share(count, 2 * place, 8);
      const Share second = even_share(count, 2 * place + 1, 8);
      EXPECT_EQ(first.first, coarse.first);
      EXPECT_EQ(second.first, first.first + first.count);
      EXPECT_EQ(first.count + second.count, coarse.count);
    }
  }
}

std::string refusal(const Shape& shape, const Placement& placement) {
  try {
    slice_of(shape, placement, place_of(2, 0));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "none";
}

TEST(Placement, InvalidPlacementsAreRefused) {
  EXPECT_EQ(refusal({4, 3}, {.cuts = {{Axis::tensor, 0}}, .owner = {{Axis::data}, 0}}), "none");
  EXPECT_THAT(refusal({4}, {.partial = {Axis::expert}}), HasSubstr("partial sum over expert"));
  EXPECT_THAT(refusal({4}, {.owner = {{Axis::tensor}, 2}}), HasSubstr("number 2 along tensor"));
  EXPECT_THAT(refusal({4}, {.owner = {{Axis::tensor}, -1}}), HasSubstr("number -1 along tensor"));
  EXPECT_THAT(refusal({4}, {.owner = {{Axis::pipeline}, 0}}), HasSubstr("along pipeline"));
  EXPECT_THAT(refusal({}, {.owner = {{Axis::tensor}, 0}}), HasSubstr("the parameter is a scalar"));
  EXPECT_THAT(refusal({4}, {.cuts = {{Axis::tensor, 0}}, .owner = {{Axis::tensor}, 0}}),
              HasSubstr("sharded already"));
  EXPECT_THAT(refusal({4}, {.cuts = {{Axis::tensor, 0, {2, 4}}}}), HasSubstr("sum to 6, not 4"));
  EXPECT_THAT(refusal({4}, {.cuts = {{Axis::tensor, 0, {-2, 6}}}}),
              HasSubstr("a part of it has size -2"));
  EXPECT_THAT(refusal({4}, {.cuts = {{Axis::tensor, 1}}}), HasSubstr("no such dimension"));
  EXPECT_THAT(refusal({4}, {.cuts = {{Axis::tensor, -1}}}), HasSubstr("no such dimension"));
  EXPECT_THAT(refusal({4}, {.cuts = {{Axis::data, 0}}}), HasSubstr("the axis data"));
  EXPECT_THAT(refusal({4}, {.cuts = {{Axis::context, 0}}}), HasSubstr("the axis context"));
  EXPECT_THAT(refusal({4}, {.cuts = {{Axis::expert, 0}}}), HasSubstr("the axis expert"));
  EXPECT_THAT(refusal({4}, {.partial = {Axis::context}}), HasSubstr("partial sum over context"));
  EXPECT_THAT(refusal({4}, {.cuts = {{Axis::pipeline, 0}}}), HasSubstr("the axis pipeline"));
  EXPECT_THAT(refusal({4, 4}, {.cuts = {{Axis::tensor, 0}, {Axis::tensor, 1}}}),
              HasSubstr("sharded already"));
  EXPECT_THAT(refusal({4}, {.cuts = {{Axis::tensor, 0}}, .partial = {Axis::tensor}}),
              HasSubstr("cannot be a partial sum over tensor"));
  EXPECT_THAT(refusal({4}, {.partial = {Axis::data}}),
              HasSubstr("cannot be a partial sum over data"));
}

TEST(Slices, InvalidSlicesAreRefused) {
  const auto refused = [](Shape shape, std::vector<Slice::Ranges> ranges) {
    EXPECT_THROW(Slice(std::move(shape), std::move(ranges)), Error);
  };
  EXPECT_NO_THROW(Slice({4, 2}, {{{0, 1}, {2, 4}}, {{0, 2}}}));
  EXPECT_NO_THROW(Slice({4, 2}, {{}, {{0, 2}}}));
  refused({4}, {});
  refused({4}, {{{0, 4}}, {{0, 1}}});
  refused({4}, {{{0, 5}}});
  refused({4}, {{{-1, 2}}});
  refused({4}, {{{2, 2}}});
  refused({4}, {{{3, 2}}});
  refused({4}, {{{0, 2}, {2, 4}}});  // must be written as 0:4
  refused({4}, {{{0, 2}, {1, 4}}});
  refused({4}, {{{2, 4}, {0, 1}}});
}

// in_blocks() converts a slice to blocks, unless the slice cuts a block.
TEST(Slices, ConvertToBlocksUnlessTheyCutOne) {
  constexpr int64_t kBlock = 8;
  for (const Shape& shape :
       {Shape{40}, Shape{6, 16}, Shape{4, 3, 24}, Shape{8, 3, 4}, Shape{4, 6}}) {
    for (int dimension = 0; dimension < std::ssize(shape); ++dimension) {
      for (const int ranks : {1, 2, 3}) {
        for (int rank = 0; rank < ranks; ++rank) {
          const Slice slice =
              slice_of(shape, {.cuts = {{.dimension = dimension}}}, place_of(ranks, rank, 1, 0));
          const std::vector<int64_t> elements = elements_of(slice);
          std::vector<int64_t> blocks;
          bool whole_blocks = true;
          for (size_t at = 0; at < elements.size(); at += kBlock) {
            whole_blocks = whole_blocks && elements[at] % kBlock == 0 &&
                           at + kBlock <= elements.size() &&
                           elements[at + kBlock - 1] == elements[at] + kBlock - 1;
            blocks.push_back(elements[at] / kBlock);
          }
          const std::optional<Slice> found = slice.in_blocks(kBlock);
          ASSERT_EQ(found.has_value(), whole_blocks) << to_text(slice);
          if (!found) continue;
          EXPECT_EQ(elements_of(*found), blocks) << to_text(slice);
          EXPECT_EQ(found->whole_shape(), Slice(shape).in_blocks(kBlock)->whole_shape());
        }
      }
    }
  }
  EXPECT_EQ(Slice({5, 5}).in_blocks(kBlock), Slice({4})) << "the last block has one element";
}

TEST(Axes, SetsAreValues) {
  constexpr AxisSet kBoth = {Axis::data, Axis::context};
  EXPECT_EQ(name(kBoth), "context x data");
  EXPECT_EQ(name(AxisSet{}), "no axis");
  EXPECT_TRUE(kBoth.has(Axis::data));
  EXPECT_FALSE(kBoth.has(Axis::tensor));
  EXPECT_EQ(kBoth.without({Axis::data, Axis::tensor}), AxisSet{Axis::context});
  EXPECT_EQ((AxisSet{Axis::data} | AxisSet{Axis::context}), kBoth);
  EXPECT_EQ((AxisSet::all() & kBoth), kBoth);
  EXPECT_EQ(kBatchAxes, (kBoth | AxisSet{Axis::expert, Axis::spatial}));
}

}  // namespace
}  // namespace tutti::training
