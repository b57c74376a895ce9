// Tests bench/layout.h: the expected result of every rank must agree with the definition of each
// collective.
#include "bench/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/text.h"

namespace tutti::bench {
namespace {

using Values = std::vector<int64_t>;

// Value of elements that no collective has written.
constexpr int64_t kLeft = static_cast<int64_t>(0xa5a5a5a5a5a5a5a5);
constexpr uint64_t kCount = 12;

Values input_of(const Layout& layout, int rank) {
  Values values(layout.inputs(rank));
  fill_input(Data::exact, DType::i64, ReduceOp::sum, layout, rank, values.data());
  return values;
}

Values output_of(const Layout& layout, int rank) {
  const std::vector<std::byte> bytes =
      expected_output(Data::exact, DType::i64, ReduceOp::sum, layout, rank);
  Values values(bytes.size() / sizeof(int64_t));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Values sum_of(const std::vector<Values>& inputs, int ranks) {
  Values sum = inputs.front();
  for (int rank = 1; rank < ranks; ++rank) {
    std::ranges::transform(sum, inputs[rank], sum.begin(), std::plus<>());
  }
  return sum;
}

void append(Values& to, const Values& from) { to.insert(to.end(), from.begin(), from.end()); }

// Divides a buffer into blocks.
std::vector<Values> cut(const Values& buffer, const std::vector<uint64_t>& counts) {
  std::vector<Values> blocks;
  auto at = buffer.begin();
  for (const uint64_t count : counts) {
    blocks.emplace_back(at, at + static_cast<ptrdiff_t>(count));
    at += static_cast<ptrdiff_t>(count);
  }
  EXPECT_EQ(at, buffer.end());
  return blocks;
}

// Returns the result of `rank` according to MPI's definition of the collective.
Values by_hand(const Layout& layout, const std::vector<Values>& in, int rank) {
  const int p = layout.ranks;
  const bool is_root = rank == layout.root;
  const auto blocks = [&](int r) { return cut(in[r], layout.input_counts(r)); };
  Values out;
  switch (layout.collective) {
    case Collective::all_reduce:
      return sum_of(in, p);
    case Collective::reduce:
      return is_root ? sum_of(in, p) : Values();
    case Collective::scan:
      return sum_of(in, rank + 1);
    case Collective::exscan:
      return rank > 0 ? sum_of(in, rank) : Values(kCount, kLeft);
    case Collective::broadcast:
      return in[layout.root];
    case Collective::reduce_scatter:
      return cut(sum_of(in, p), layout.input_counts(rank))[rank];
    case Collective::scatter:
      return blocks(layout.root)[rank];
    case Collective::all_gather:
      for (const Values& values : in) append(out, values);
      return out;
    case Collective::gather:
      for (const Values& values : in) append(out, is_root ? values : Values());
      return out;
    case Collective::all_to_all:
      for (int r = 0; r < p; ++r) append(out, blocks(r)[rank]);
      return out;
    case Collective::send_recv:
      return in[(rank + p - 1) % p];
    case Collective::barrier:
      break;
  }
  return out;
}

void check(const Layout& layout) {
  std::vector<Values> inputs;
  for (int rank = 0; rank < layout.ranks; ++rank) inputs.push_back(input_of(layout, rank));
  for (int rank = 0; rank < layout.ranks; ++rank) {
    EXPECT_EQ(output_of(layout, rank), by_hand(layout, inputs, rank)) << "rank " << rank;
    EXPECT_EQ(layout.outputs(rank), output_of(layout, rank).size());
  }
}

TEST(Layout, HasTheResultOfEveryRank) {
  std::vector<Collective> collectives(std::begin(kCollectivesWithAlgorithms),
                                      std::end(kCollectivesWithAlgorithms));
  collectives.push_back(Collective::send_recv);
  for (const Collective collective : collectives) {
    for (const int ranks : {1, 2, 3, 5}) {
      SCOPED_TRACE(cat(name(collective), ' ', ranks));
      const int root = has_root(collective) ? ranks - 1 : 0;
      Layout layout{
          .collective = collective, .ranks = ranks, .root = root, .count = kCount, .uneven = {}};
      check(layout);
      if (!has_input_blocks(collective) && !has_output_blocks(collective)) continue;
      EXPECT_EQ(layout.total(), kCount * ranks);
      layout.uneven = uneven_blocks(collective, ranks, kCount);
      check(layout);
      EXPECT_EQ(layout.total(), kCount * ranks);
    }
  }
}

TEST(Layout, UnevenBlocksHaveTheSameTotal) {
  for (const uint64_t count : {0, 1, 2, 1000}) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      const std::vector<uint64_t> blocks = uneven_blocks(Collective::all_gather, ranks, count);
      ASSERT_EQ(blocks.size(), static_cast<size_t>(ranks));
      EXPECT_EQ(std::accumulate(blocks.begin(), blocks.end(), uint64_t{0}), count * ranks);
      EXPECT_EQ(std::ranges::min(blocks), ranks > 1 ? 0 : count);
      EXPECT_EQ(std::ranges::max(blocks), ranks > 1 ? 2 * count : count);
    }
  }
}

}  // namespace
}  // namespace tutti::bench
