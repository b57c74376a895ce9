// Tests every conversion between layouts. Rows and columns are not evenly divisible, and some ranks
// have no rows or columns.
#include "training/parallel/convert_layout.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tests/support/ranks.h"
#include "tests/training/support/bound_parameters.h"
#include "training/parallel/mesh.h"
#include "training/parallel/sum_in_order.h"

namespace tutti::training {
namespace {

using testing::HostTensor;
using testing::TestPass;
using tutti::testing::run_ranks;

// Returns element (row, col) of the whole tensor: an integer, so that sums of small multiples of it
// are exact.
double whole_at(int64_t row, int64_t col, int64_t cols) {
  return static_cast<double>(row * cols + col + 1);
}

// Returns the part of the whole tensor that the rank at `place` has in layout `spread`.
HostTensor part_of(const WholeShape& whole, Spread spread, const MeshPlace& place) {
  const int rank = place.place(Axis::tensor), ranks = place.size(Axis::tensor);
  Share rows{0, whole.rows}, cols{0, whole.cols};
  if (spread == Spread::rows) rows = even_share(whole.rows, rank, ranks);
  if (spread == Spread::columns) cols = even_share(whole.cols, rank, ranks);
  HostTensor tensor(DType::f32, rows.count, cols.count);
  for (int64_t r = 0; r < rows.count; ++r) {
    for (int64_t c = 0; c < cols.count; ++c) {
      // Each part holds 10 times the element, except in a partial layout, where the terms of all
      // ranks add up to 10 times: rank 0 holds 11 - ranks times the element, and each other rank
      // holds it once.
      const double value = whole_at(rows.first + r, cols.first + c, whole.cols);
      const double factor = spread != Spread::partial ? 10 : rank > 0 ? 1 : 11 - ranks;
      testing::set(tensor, r, c, factor * value);
    }
  }
  return tensor;
}

void check(Mesh& mesh, const WholeShape& whole, Spread from, Spread to, int slices) {
  SCOPED_TRACE(cat("from ", static_cast<int>(from), " to ", static_cast<int>(to), ", ", whole.rows,
                   " x ", whole.cols));
  TestPass test(DType::f32);
  test.pass.mesh = &mesh;
  test.pass.slices = slices;
  const HostTensor given = part_of(whole, from, mesh.place());
  const HostTensor wanted = part_of(whole, to, mesh.place());
  const Tensor found =
      convert_layout(test.pass, mesh.place(), given.view(), whole,
                     ActivationLayout(Axis::tensor, from), ActivationLayout(Axis::tensor, to));
  ASSERT_EQ(found.rows, wanted.view().rows);
  ASSERT_EQ(found.cols, wanted.view().cols);
  EXPECT_EQ(testing::doubles(found), testing::doubles(wanted));
}

TEST(ConvertLayout, EveryLayoutIntoEveryOther) {
  for (const int ranks : {1, 2, 3, 4, 5}) {
    run_ranks(ranks, [&](const Job& job) {
      Mesh mesh(Communicator::init(job), {.tensor = ranks, .data = 1});
      for (const WholeShape& whole : {WholeShape{7, 5}, {1, 1}, {3, 16}, {12, 2}, {0, 4}}) {
        for (const Spread from :
             {Spread::replicated, Spread::rows, Spread::columns, Spread::partial}) {
          for (const Spread to : {Spread::replicated, Spread::rows, Spread::columns}) {
            if (ranks == 1 && from == Spread::partial) continue;  // one rank has no partial layout
            check(mesh, whole, from, to, 1);
            check(mesh, whole, from, to, ranks);
          }
        }
      }
    });
  }
}

TEST(ConvertLayout, RefusesEqualLayouts) {
  run_ranks(2, [](const Job& job) {
    Mesh mesh(Communicator::init(job), {.tensor = 2, .data = 1});
    TestPass test(DType::f32);
    const HostTensor given(DType::f32, 2, 2);
    EXPECT_THROW(
        convert_layout(test.pass, mesh.place(), given.view(), {2, 2}, kReplicated, kTensorPartial),
        Error);
    EXPECT_THROW(convert_layout(test.pass, mesh.place(), ConstTensor(given), {2, 2}, kTensorPartial,
                                kReplicated),
                 Error);
    EXPECT_THROW(convert_layout(test.pass, mesh.place(), given.view(), {2, 2}, kTensorRows,
                                ActivationLayout(Axis::context, Spread::rows)),
                 Error);
  });
}

// To measure a model alone, it has the shapes of a mesh, but there are no other ranks.
TEST(ConvertLayout, OtherRanksPartsAreZeroWithoutAMesh) {
  TestPass test(DType::f32);
  const MeshPlace place{.sizes = {3, 1, 1, 1, 1, 1}, .places = {1, 0, 0, 0, 0, 0}};
  const HostTensor own = part_of({7, 2}, Spread::rows, place);
  const Tensor all = convert_layout(test.pass, place, own.view(), {7, 2}, kTensorRows, kReplicated);
  ASSERT_EQ(all.rows, 7);
  const std::vector<double> values = testing::doubles(all);
  const std::vector<double> own_values = testing::doubles(own);
  const Share share = even_share(7, 1, 3);
  for (int64_t i = 0; i < all.size(); ++i) {
    const int64_t at = i - 2 * share.first;
    const bool is_own = at >= 0 && at < std::ssize(own_values);
    EXPECT_EQ(values[static_cast<size_t>(i)], is_own ? own_values[static_cast<size_t>(at)] : 0);
  }
}

// Sums of these numbers depend on the order. 2, 4 and 8 ranks must sum in the order of the same
// tree.
TEST(SumInOrder, EveryNumberOfRanksSumsInOneTree) {
  const auto term = [](int slice, int64_t i) {
    return static_cast<float>(1 + slice) / static_cast<float>(3 + i) +
           1e7F * static_cast<float>(slice % 3);
  };
  constexpr int64_t kElements = 9;
  const auto tree = [&](int64_t i, int first, int count, const auto& self) -> float {
    if (count == 1) return term(first, i);
    return self(i, first, count / 2, self) + self(i, first + count / 2, count / 2, self);
  };
  for (const int ranks : {1, 2, 4, 8}) {
    run_ranks(ranks, [&](const Job& job) {
      Communicator world = Communicator::init(job);
      const int own = 8 / ranks;
      std::vector<float> values;
      for (int64_t i = 0; i < kElements; ++i) values.push_back(tree(i, job.rank * own, own, tree));
      std::vector<uint64_t> counts;
      for (int rank = 0; rank < ranks; ++rank) {
        counts.push_back(static_cast<uint64_t>(even_share(kElements, rank, ranks).count));
      }
      const auto [first, count] = even_share(kElements, job.rank, ranks);
      Arena arena;
      const Tensor all = tensor_at(values.data(), DType::f32, 1, kElements);
      const Tensor block = all.col_range(first, count);
      sum_in_order(arena, world, all, Blocks::of(counts), block);
      for (int64_t i = first; i < first + count; ++i) {
        EXPECT_EQ(values[static_cast<size_t>(i)], tree(i, 0, 8, tree)) << ranks << " ranks";
      }
    });
  }
}

}  // namespace
}  // namespace tutti::training
