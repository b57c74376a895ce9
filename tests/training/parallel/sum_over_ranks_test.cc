// Tests sums of rows over ranks that proceed while the next rows are computed. The results must
// equal those of a conversion.
#include "training/parallel/sum_over_ranks.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/text.h"
#include "tests/support/ranks.h"
#include "tests/training/support/bound_parameters.h"
#include "tests/training/support/host_tensor.h"
#include "training/parallel/mesh.h"

namespace tutti::training {
namespace {

using testing::HostTensor;
using testing::TestPass;
using tutti::testing::run_ranks;

// Returns an integer, so that sums are exact. Rank r contributes (r + 1) times this value.
double value_at(int64_t row, int64_t col) { return static_cast<double>((row * 7 + col) % 100); }

void fill(Tensor part, const Share& rows, int rank) {
  for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
    for (int64_t col = 0; col < part.cols; ++col) {
      testing::set(part, row, col, (rank + 1) * value_at(row, col));
    }
  }
}

void check(Mesh& mesh, const WholeShape& whole, const ActivationLayout& to, bool overlaps) {
  SCOPED_TRACE(cat(whole.rows, " x ", whole.cols, to == kReplicated ? "" : " by rows"));
  TestPass test(DType::f32);
  test.pass.mesh = &mesh;
  const int ranks = mesh.size(Axis::tensor), rank = mesh.place(Axis::tensor);
  HostTensor part(DType::f32, whole.rows, whole.cols);
  SumOverRanks sum(test.pass, mesh.place(), whole, to, overlaps);
  int64_t told = 0;
  for (size_t turn = 0; turn < sum.parts().size(); ++turn) {
    fill(part, sum.parts()[turn], rank);  // the other parts are filled in later turns
    sum.done(part, turn);
    told += sum.parts()[turn].count;
  }
  EXPECT_EQ(told, sum.parts().empty() ? 0 : whole.rows);
  if (sum.parts().empty()) fill(part, {0, whole.rows}, rank);
  const Tensor found = sum.finish(part);
  const Share own = to == kReplicated ? Share{0, whole.rows} : even_share(whole.rows, rank, ranks);
  ASSERT_EQ(found.rows, own.count);
  for (int64_t row = 0; row < found.rows; ++row) {
    for (int64_t col = 0; col < found.cols; ++col) {
      const double expected = ranks * (ranks + 1) / 2 * value_at(own.first + row, col);
      ASSERT_EQ(testing::get(found, row, col), expected) << row << ", " << col;
    }
  }
}

TEST(SumOverRanks, AnyNumberOfTurnsGivesTheSum) {
  for (const int ranks : {1, 2, 3, 4}) {
    run_ranks(ranks, [&](const Job& job) {
      Mesh mesh(Communicator::init(job), {.tensor = ranks, .data = 1});
      for (const WholeShape& whole :
           {WholeShape{0, 8}, {1, 8}, {5, 3}, {700, 256}, {1027, 400}, {2048, 256}}) {
        for (const ActivationLayout& to : {kReplicated, kTensorRows}) {
          for (const bool overlaps : {false, true}) check(mesh, whole, to, overlaps);
        }
      }
    });
  }
}

TEST(SumOverRanks, TakesTurnsOnlyForLargeSums) {
  run_ranks(2, [&](const Job& job) {
    Mesh mesh(Communicator::init(job), {.tensor = 2, .data = 1});
    TestPass test(DType::f32);
    test.pass.mesh = &mesh;
    const auto parts = [&](const WholeShape& whole, const ActivationLayout& to) {
      return SumOverRanks(test.pass, mesh.place(), whole, to, true).parts().size();
    };
    EXPECT_EQ(parts({16, 16}, kReplicated), 1u);
    EXPECT_EQ(parts({2048, 256}, kReplicated), 4u);
    EXPECT_EQ(parts({2048, 256}, kTensorRows), 8u) << "of each rank's rows a part";
    test.pass.slices = 8;
    EXPECT_EQ(parts({2048, 256}, kReplicated), 0u) << "shapes are those of slices";
  });
}

}  // namespace
}  // namespace tutti::training
