// Blocked attention against the whole softmax in double. (Gradients: self_attention_test.cc.)
#include "training/kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/training/support/host_tensor.h"
#include "training/kernels/elementwise.h"

namespace tutti::training::testing {
namespace {

struct Result {
  HostTensor output;
  HostTensor lse;
};

Result run(const AttentionShape& shape, ConstTensor qkv) {
  Arena arena(size_t{1} << 28);
  Result result{HostTensor(qkv.dtype, shape.rows(), shape.width()),
                HostTensor(value_type(qkv.dtype), shape.samples * shape.heads, shape.context)};
  causal_attention(shape, qkv, result.output, result.lse, arena);
  EXPECT_EQ(arena.mark(), 0u);
  return result;
}

// softmax(q k^T / sqrt(head_size)) v, each row on the rows up to it.
Result whole_softmax(const AttentionShape& shape, ConstTensor qkv) {
  Result result{HostTensor(DType::f64, shape.rows(), shape.width()),
                HostTensor(DType::f64, shape.samples * shape.heads, shape.context)};
  for (int64_t head = 0; head < shape.samples * shape.heads; ++head) {
    const int64_t first = head / shape.heads * shape.context;
    const int64_t col = head % shape.heads * shape.head_size;
    for (int64_t query = 0; query < shape.context; ++query) {
      std::vector<double> scores;
      for (int64_t key = 0; key <= query; ++key) {
        double score = 0;
        for (int64_t i = 0; i < shape.head_size; ++i) {
          score +=
              get(qkv, first + query, col + i) * get(qkv, first + key, shape.width() + col + i);
        }
        scores.push_back(score / std::sqrt(static_cast<double>(shape.head_size)));
      }
      const double largest = *std::max_element(scores.begin(), scores.end());
      double sum = 0;
      for (const double score : scores) sum += std::exp(score - largest);
      set(result.lse, head, query, largest + std::log(sum));
      for (int64_t i = 0; i < shape.head_size; ++i) {
        double value = 0;
        for (int64_t key = 0; key <= query; ++key) {
          value += std::exp(scores[static_cast<size_t>(key)] - largest) / sum *
                   get(qkv, first + key, 2 * shape.width() + col + i);
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
        const HostTensor qkv = random_tensor(type, shape.rows(), 3 * shape.width(), 8, 3);
        const Result blocked = run(shape, qkv), whole = whole_softmax(shape, qkv);
        EXPECT_LT(relative_distance(blocked.output, whole.output), tolerance_of(type))
            << context << " " << heads << " " << name(type);
        EXPECT_LT(relative_distance(blocked.lse, whole.lse), tolerance_of(type))
            << context << " " << heads << " " << name(type);
      }
    }
  }
}

// Each key beats those before it by far: the maximum moves in every row and every block.
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
  const AttentionShape shape{1, 4, 2, 3};
  HostTensor qkv(DType::f32, 4, 18), output(DType::f32, 4, 6), lse(DType::f32, 2, 4);
  HostTensor narrow(DType::f32, 4, 17), wide_lse(DType::f64, 2, 4);
  EXPECT_NO_THROW(causal_attention(shape, qkv, output, lse, arena));
  EXPECT_THROW(causal_attention(shape, narrow, output, lse, arena), Error);
  EXPECT_THROW(causal_attention(shape, qkv, output, wide_lse, arena), Error);
}

}  // namespace
}  // namespace tutti::training::testing
