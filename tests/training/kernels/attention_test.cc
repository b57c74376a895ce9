// Tests blocked attention against a softmax of whole rows in double. self_attention_test.cc tests
// gradients.
#include "training/kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/training/support/host_tensor.h"
#include "training/kernels/elementwise.h"

namespace tutti::training::testing {
namespace {

struct Result {
  HostTensor output;
  HostTensor lse;
};

int64_t columns_of(const AttentionShape& shape) { return shape.width() + 2 * shape.key_width(); }

Result result_of(const AttentionShape& shape, DType type) {
  return {HostTensor(type, shape.rows(), shape.width()),
          HostTensor(value_type(type), shape.samples * shape.heads, shape.context)};
}

Result run(const AttentionShape& shape, const ConstQkv& qkv) {
  Arena arena(size_t{1} << 28);
  Result result = result_of(shape, qkv.queries.dtype);
  causal_attention(shape, qkv, result.output, result.lse, arena);
  EXPECT_EQ(arena.mark(), 0u);
  return result;
}

Result run(const AttentionShape& shape, ConstTensor qkv) {
  return run(shape, split_qkv(shape, qkv));
}

// Returns softmax(q k^T / sqrt(head_size)) v. Row i attends to the rows up to i; with `starts`,
// only to those from starts[i].
Result whole_softmax(const AttentionShape& shape, ConstTensor all) {
  const ConstQkv qkv = split_qkv(shape, all);
  Result result = result_of(shape, DType::f64);
  for (int64_t head = 0; head < shape.samples * shape.heads; ++head) {
    const int64_t first = head / shape.heads * shape.context;
    const int64_t col = head % shape.heads * shape.head_size;
    const int64_t key_col = head % shape.heads / (shape.heads / shape.groups()) * shape.head_size;
    for (int64_t query = 0; query < shape.context; ++query) {
      const int64_t start =
          shape.starts.empty() ? 0 : shape.starts[static_cast<size_t>(first + query)];
      std::vector<double> scores;
      for (int64_t key = start; key <= query; ++key) {
        double score = 0;
        for (int64_t i = 0; i < shape.head_size; ++i) {
          score +=
              get(qkv.queries, first + query, col + i) * get(qkv.keys, first + key, key_col + i);
        }
        scores.push_back(score / std::sqrt(static_cast<double>(shape.head_size)));
      }
      const double largest = *std::max_element(scores.begin(), scores.end());
      double sum = 0;
      for (const double score : scores) sum += std::exp(score - largest);
      set(result.lse, head, query, largest + std::log(sum));
      for (int64_t i = 0; i < shape.head_size; ++i) {
        double value = 0;
        for (int64_t key = start; key <= query; ++key) {
          value += std::exp(scores[static_cast<size_t>(key - start)] - largest) / sum *
                   get(qkv.values, first + key, key_col + i);
        }
        set(result.output, first + query, col + i, value);
      }
    }
  }
  return result;
}

double tolerance_of(DType type) {
  switch (type) {
    case DType::f64:
      return 1e-13;
    case DType::f32:
      return 2e-6;
    case DType::f16:
      return 2e-3;
    default:
      return 1e-2;  // bf16: probabilities and results are rounded to 8 bits
  }
}

TEST(AttentionTest, EqualsTheWholeSoftmax) {
  for (const int64_t context : {1, 3, 13, 128, 129, 257}) {
    for (const int64_t heads : {1, 3}) {
      for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
        const AttentionShape shape{2, context, heads, 5};
        const HostTensor qkv = random_tensor(type, shape.rows(), columns_of(shape), 8, 3);
        const Result blocked = run(shape, qkv), whole = whole_softmax(shape, qkv);
        EXPECT_LT(relative_distance(blocked.output, whole.output), tolerance_of(type))
            << context << " " << heads << " " << name(type);
        EXPECT_LT(relative_distance(blocked.lse, whole.lse), tolerance_of(type))
            << context << " " << heads << " " << name(type);
      }
    }
  }
}

TEST(AttentionTest, HeadsOfKeysServeGroupsOfQueries) {
  for (const int64_t key_heads : {1, 2, 3, 6}) {
    const AttentionShape shape{
        .samples = 2, .context = 150, .heads = 6, .head_size = 4, .key_heads = key_heads};
    const HostTensor qkv = random_tensor(DType::f32, shape.rows(), columns_of(shape), 8, 3);
    const Result blocked = run(shape, qkv), whole = whole_softmax(shape, qkv);
    EXPECT_LT(relative_distance(blocked.output, whole.output), 2e-6) << key_heads;
    EXPECT_LT(relative_distance(blocked.lse, whole.lse), 2e-6) << key_heads;
  }
}

// Packs documents into samples. Some begin or end within a block, and some at a block's border.
TEST(AttentionTest, QueriesSeeNoEarlierDocument) {
  AttentionShape shape{.samples = 2, .context = 300, .heads = 2, .head_size = 4, .key_heads = 1};
  std::vector<int32_t> starts;
  for (const std::vector<int32_t>& documents :
       {std::vector<int32_t>{0, 1, 40, 128, 290, 300}, {0, 256, 299, 300}}) {
    for (size_t i = 1; i < documents.size(); ++i) {
      starts.insert(starts.end(), static_cast<size_t>(documents[i] - documents[i - 1]),
                    documents[i - 1]);
    }
  }
  shape.starts = starts;
  const HostTensor qkv = random_tensor(DType::f32, shape.rows(), columns_of(shape), 8, 3);
  const Result blocked = run(shape, qkv), whole = whole_softmax(shape, qkv);
  EXPECT_LT(relative_distance(blocked.output, whole.output), 2e-6);
  EXPECT_LT(relative_distance(blocked.lse, whole.lse), 2e-6);
}

// The gradients of a document are the same as if it were alone.
TEST(AttentionTest, GradientsStayWithinADocument) {
  constexpr int64_t kFirst = 131, kSecond = 70, kAll = kFirst + kSecond;
  const auto gradients = [](const AttentionShape& shape, ConstTensor qkv, ConstTensor dy) {
    Arena arena(size_t{1} << 28);
    const Result result = run(shape, qkv);
    HostTensor gradient(qkv.dtype, qkv.rows, qkv.cols);
    causal_attention_backward(shape, split_qkv(shape, qkv), result.output, result.lse, dy,
                              split_qkv(shape, gradient.view()), arena);
    return gradient;
  };
  AttentionShape shape{.samples = 1, .context = kAll, .heads = 4, .head_size = 4, .key_heads = 2};
  const HostTensor qkv = random_tensor(DType::f32, kAll, columns_of(shape), 8, 3);
  const HostTensor dy = random_tensor(DType::f32, kAll, shape.width(), 9, 1);
  std::vector<int32_t> starts(kFirst, 0);
  starts.resize(kAll, kFirst);
  shape.starts = starts;
  const HostTensor both = gradients(shape, qkv, dy);
  shape.starts = {};
  for (const auto& [first, rows] : {std::pair(int64_t{0}, kFirst), {kFirst, kSecond}}) {
    shape.context = rows;
    const HostTensor alone =
        gradients(shape, qkv.view().row_range(first, rows), dy.view().row_range(first, rows));
    EXPECT_LT(relative_distance(both.view().row_range(first, rows), alone), 1e-5);
  }
}

// Computes rows one by one, and in pieces. Keys and values are in memory that has room for more
// rows.
TEST(AttentionTest, LaterQueriesSeeKeysOfEarlierCalls) {
  constexpr int64_t kRows = 200, kRoom = 256;
  const AttentionShape whole{
      .samples = 1, .context = kRows, .heads = 4, .head_size = 4, .key_heads = 2};
  const HostTensor qkv = random_tensor(DType::f32, kRows, columns_of(whole), 8, 3);
  const Result all = run(whole, qkv);
  const ConstQkv parts = split_qkv(whole, ConstTensor(qkv.view()));
  HostTensor keys(DType::f32, kRoom, 8), values(DType::f32, kRoom, 8);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < 8; ++i) {
      set(keys, row, i, get(parts.keys, row, i));
      set(values, row, i, get(parts.values, row, i));
    }
  }
  int64_t past = 0;
  for (const int64_t rows : {100, 1, 29, 69, 1}) {
    AttentionShape later = whole;
    later.context = rows;
    later.keys = kRoom;
    std::vector<int32_t> ends(static_cast<size_t>(rows));
    std::iota(ends.begin(), ends.end(), static_cast<int32_t>(past) + 1);
    later.ends = ends;
    const Result part = run(later, {parts.queries.row_range(past, rows), keys, values});
    EXPECT_LT(relative_distance(part.output, all.output.view().row_range(past, rows)), 2e-6);
    past += rows;
  }
}

// --- keys in parts ---

// For each query of a part of the queries, the first key and the end of the keys in a part of the
// keys.
struct Bounds {
  std::vector<int32_t> starts, ends;
};

// Queries and keys of one sample. Query i attends to the keys from starts[i], or from 0 if `starts`
// is empty.
struct InParts {
  AttentionShape whole{.samples = 1, .context = 300, .heads = 4, .head_size = 6, .key_heads = 2};
  DType type = DType::f32;
  std::vector<int32_t> starts = {};

  // Returns the shape of queries [first, first + rows) and keys [key, key + keys). It refers to
  // `bounds`, which must outlive it.
  AttentionShape shape(int64_t first, int64_t rows, int64_t key, int64_t keys,
                       Bounds& bounds) const {
    bounds = {};
    for (int64_t row = first; row < first + rows; ++row) {
      const int32_t start = starts.empty() ? 0 : starts[static_cast<size_t>(row)];
      bounds.starts.push_back(start - static_cast<int32_t>(key));
      bounds.ends.push_back(static_cast<int32_t>(row + 1 - key));
    }
    AttentionShape shape = whole;
    shape.context = rows;
    shape.keys = keys;
    shape.starts = bounds.starts;
    shape.ends = bounds.ends;
    return shape;
  }
};

constexpr std::pair<int64_t, int64_t> kKeyParts[] = {{201, 99}, {0, 64}, {64, 136}, {200, 1}};
constexpr std::pair<int64_t, int64_t> kQueryParts[] = {{0, 150}, {150, 1}, {151, 149}};

std::vector<InParts> problems_in_parts() {
  std::vector<InParts> problems(4);
  for (int32_t row = 0; row < 300; ++row) {
    problems[1].starts.push_back(row < 70 ? 0 : row < 201 ? 70 : 201);  // documents
    problems[2].starts.push_back(std::max(0, row - 40));                // a window that slides
  }
  problems[3].type = DType::bf16;
  return problems;
}

void fill_with(Tensor tensor, double value) {
  assign(tensor, std::vector<double>(static_cast<size_t>(tensor.size()), value));
}

ConstQkv rows_of_qkv(const ConstQkv& all, int64_t first, int64_t rows, int64_t key, int64_t keys) {
  return {all.queries.row_range(first, rows), all.keys.row_range(key, keys),
          all.values.row_range(key, keys)};
}

// Some queries attend to no key of a part, others to all of its keys.
TEST(AttentionTest, PartsOfTheKeysMergeIntoAll) {
  for (const InParts& p : problems_in_parts()) {
    Arena arena(size_t{1} << 26);
    AttentionShape whole = p.whole;
    whole.starts = p.starts;
    const HostTensor qkv = random_tensor(p.type, whole.rows(), columns_of(whole), 8, 3);
    const Result expected = whole_softmax(whole, qkv);
    const ConstQkv all = split_qkv(whole, ConstTensor(qkv.view()));
    for (const auto& [first, rows] : kQueryParts) {
      Result merged{HostTensor(DType::f32, rows, whole.width()),
                    HostTensor(DType::f32, whole.heads, rows)};
      fill_with(merged.lse, -std::numeric_limits<double>::infinity());
      AttentionShape shape;
      Bounds bounds;
      for (const auto& [key, keys] : kKeyParts) {
        shape = p.shape(first, rows, key, keys, bounds);
        const Result part{HostTensor(DType::f32, rows, whole.width()),
                          HostTensor(DType::f32, whole.heads, rows)};
        causal_attention(shape, rows_of_qkv(all, first, rows, key, keys), part.output, part.lse,
                         arena);
        merge_attention(shape, part.output, part.lse, merged.output, merged.lse);
      }
      EXPECT_LT(relative_distance(merged.output, expected.output.view().row_range(first, rows)),
                tolerance_of(p.type));
      for (int64_t head = 0; head < whole.heads; ++head) {
        for (int64_t row = 0; row < rows; ++row) {
          ASSERT_NEAR(get(merged.lse, head, row), get(expected.lse, head, first + row),
                      10 * tolerance_of(p.type));
        }
      }
    }
  }
}

TEST(AttentionTest, AQueryWithoutKeysHasNoOutput) {
  const std::vector<int32_t> ends = {-1, 0, 1, 2, 3};
  const AttentionShape shape{
      .samples = 1, .context = 5, .heads = 1, .head_size = 3, .keys = 4, .ends = ends};
  Arena arena(size_t{1} << 20);
  const HostTensor queries = random_tensor(DType::f32, 5, 3, 1),
                   keys = random_tensor(DType::f32, 4, 3, 2);
  const Result result = run(shape, ConstQkv{queries, keys, keys});
  for (int64_t row = 0; row < 2; ++row) {
    EXPECT_EQ(get(result.lse, 0, row), -std::numeric_limits<double>::infinity());
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(get(result.output, row, i), 0);
  }
  EXPECT_TRUE(std::isfinite(get(result.lse, 0, 2)));
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(get(result.output, 2, i), get(keys, 0, i));
}

// Each part of the keys, given the outputs over all keys, contributes its part of the gradients.
TEST(AttentionTest, GradientsOfPartsAddUp) {
  for (const InParts& p : problems_in_parts()) {
    if (p.type != DType::f32) continue;
    Arena arena(size_t{1} << 26);
    AttentionShape whole = p.whole;
    whole.starts = p.starts;
    const HostTensor qkv = random_tensor(p.type, whole.rows(), columns_of(whole), 8, 3);
    const HostTensor dy = random_tensor(p.type, whole.rows(), whole.width(), 9, 1);
    const Result all = run(whole, qkv);
    HostTensor expected(p.type, qkv.view().rows, qkv.view().cols);
    causal_attention_backward(whole, split_qkv(whole, ConstTensor(qkv.view())), all.output, all.lse,
                              dy, split_qkv(whole, expected.view()), arena);
    HostTensor sums(p.type, qkv.view().rows, qkv.view().cols);
    const Qkv sum = split_qkv(whole, sums.view());
    const ConstQkv inputs = split_qkv(whole, ConstTensor(qkv.view()));
    for (const auto& [first, rows] : kQueryParts) {
      HostTensor lse(DType::f32, whole.heads, rows);
      for (int64_t head = 0; head < whole.heads; ++head) {
        for (int64_t row = 0; row < rows; ++row) {
          set(lse, head, row, get(all.lse, head, first + row));
        }
      }
      for (const auto& [key, keys] : kKeyParts) {
        Bounds bounds;
        const AttentionShape shape = p.shape(first, rows, key, keys, bounds);
        const HostTensor dq(p.type, rows, whole.width());
        const HostTensor dk(p.type, keys, whole.key_width()), dv(p.type, keys, whole.key_width());
        causal_attention_backward(shape, rows_of_qkv(inputs, first, rows, key, keys),
                                  all.output.view().row_range(first, rows), lse,
                                  dy.view().row_range(first, rows), {dq, dk, dv}, arena);
        for (const auto& [part, to] : {std::pair(dq.view(), sum.queries.row_range(first, rows)),
                                       std::pair(dk.view(), sum.keys.row_range(key, keys)),
                                       std::pair(dv.view(), sum.values.row_range(key, keys))}) {
          for (int64_t row = 0; row < part.rows; ++row) {
            add(to.row_range(row, 1), part.row_range(row, 1), to.row_range(row, 1));
          }
        }
      }
    }
    EXPECT_LT(relative_distance(sums, expected), 1e-5);
  }
}

// The score of each key far exceeds the scores before it, so that the maximum changes in every row
// and every block.
TEST(AttentionTest, GrowingAndHugeScores) {
  const AttentionShape shape{1, 300, 1, 2};
  for (const double step : {0.5, 1e4, -1e4}) {
    HostTensor qkv(DType::f32, 300, 6);
    for (int64_t row = 0; row < 300; ++row) {
      set(qkv, row, 0, 1);                                // query
      set(qkv, row, 2, step * static_cast<double>(row));  // key
      set(qkv, row, 4, static_cast<double>(row + 1));     // value
      set(qkv, row, 5, static_cast<double>(row % 7));
    }
    const Result blocked = run(shape, qkv), whole = whole_softmax(shape, qkv);
    EXPECT_LT(relative_distance(blocked.output, whole.output), 1e-5) << step;
  }
}

TEST(AttentionTest, NoLaterRowChangesAnEarlierOne) {
  const AttentionShape shape{1, 200, 2, 4};
  const HostTensor qkv = random_tensor(DType::f32, 200, 24, 8, 3);
  const Result before = run(shape, qkv);
  randomize(qkv.view().row_range(150, 50), 9);
  const Result after = run(shape, qkv);
  EXPECT_TRUE(
      same_bits(before.output.view().row_range(0, 150), after.output.view().row_range(0, 150)));
  for (int64_t row = 150; row < 200; ++row) {
    EXPECT_FALSE(
        same_bits(before.output.view().row_range(row, 1), after.output.view().row_range(row, 1)));
  }
}

TEST(AttentionTest, RefusesWhatDoesNotFit) {
  Arena arena(1 << 20);
  AttentionShape shape{1, 4, 2, 3};
  HostTensor all(DType::f32, 4, 18), output(DType::f32, 4, 6), lse(DType::f32, 2, 4);
  HostTensor narrow(DType::f32, 4, 5), wide_lse(DType::f64, 2, 4);
  const ConstQkv qkv = split_qkv(shape, ConstTensor(all.view()));
  EXPECT_NO_THROW(causal_attention(shape, qkv, output, lse, arena));
  EXPECT_THROW(causal_attention(shape, {qkv.queries, narrow, qkv.values}, output, lse, arena),
               Error);
  EXPECT_THROW(causal_attention(shape, qkv, output, wide_lse, arena), Error);
  const std::vector<int32_t> ends = {1, 2, 3};
  shape.ends = ends;
  EXPECT_THROW(causal_attention(shape, qkv, output, lse, arena), Error);
  shape.ends = {};
  shape.keys = 3;
  EXPECT_THROW(causal_attention(shape, qkv, output, lse, arena), Error);
}

}  // namespace
}  // namespace tutti::training::testing
