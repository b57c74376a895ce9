// Tests attention over ranks, forward and backward, for random packings of documents, numbers of
// heads, windows and numbers of ranks.
#include "training/modules/attention_over_ranks.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/support/ranks.h"
#include "tests/training/support/bound_parameters.h"
#include "tests/training/support/host_tensor.h"
#include "training/core/token_partition.h"
#include "training/kernels/elementwise.h"
#include "training/parallel/heads_attention.h"
#include "training/parallel/mesh.h"
#include "training/parallel/ring_attention.h"

namespace tutti::training {
namespace {

using testing::HostTensor;
using testing::random_tensor;
using testing::relative_distance;
using testing::TestPass;
using tutti::testing::run_ranks;

struct Problem {
  TokenMask mask;
  AttentionShape heads;
  DType type = DType::f64;
  std::vector<int32_t> starts;  // the first key of each query, as in the mask

  int64_t width() const { return heads.width() + 2 * heads.key_width(); }
  std::string describe() const {
    return cat(mask.samples, " x ", mask.positions, " tokens, window ", mask.window, ", ",
               heads.heads, " heads on ", heads.groups(), " of keys, ", name(type));
  }
};

Problem random_problem(std::mt19937& random) {
  const auto below = [&](int64_t most) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(most));
  };
  Problem problem;
  problem.mask.samples = 1 + below(2);
  problem.mask.positions = below(4) == 0 ? 1 + below(4) : 1 + below(300);
  problem.mask.window = below(3) == 0 ? 1 + below(50) : 0;
  problem.heads.head_size = 4;
  const int64_t kind = below(4);  // number of key heads: all, one, two, or a part of the model's
  problem.heads.heads = kind == 3 ? 3 : 4;
  problem.heads.key_heads = kind == 0 ? 4 : kind == 1 ? 1 : 2;
  if (kind == 3) problem.heads.group = 3, problem.heads.before = 1;
  if (below(2) == 0) {
    const int64_t longest = 1 + below(problem.mask.positions);
    for (int64_t sample = 0; sample < problem.mask.samples; ++sample) {
      for (int64_t at = 0; at < problem.mask.positions;) {
        const int64_t length = std::min(1 + below(longest), problem.mask.positions - at);
        problem.starts.insert(problem.starts.end(), static_cast<size_t>(length),
                              static_cast<int32_t>(at));
        at += length;
      }
    }
  }
  return problem;
}

// Inputs and results of attention over all tokens, computed by one rank as the reference.
struct Whole {
  HostTensor inputs, output, output_gradient, gradients;
};

Whole whole_of(const Problem& problem, uint64_t seed) {
  const int64_t tokens = problem.mask.tokens();
  AttentionShape shape = problem.heads;
  shape.samples = problem.mask.samples;
  shape.context = problem.mask.positions;
  std::vector<int32_t> starts;
  for (int64_t token = 0; token < tokens; ++token) {
    const int64_t sample = token / problem.mask.positions;
    starts.push_back(
        static_cast<int32_t>(problem.mask.first_seen(token) - sample * problem.mask.positions));
  }
  shape.starts = starts;
  Whole whole{random_tensor(problem.type, tokens, problem.width(), seed, 2),
              HostTensor(problem.type, tokens, shape.width()),
              random_tensor(problem.type, tokens, shape.width(), seed + 1),
              HostTensor(problem.type, tokens, problem.width())};
  const HostTensor lse(value_type(problem.type), shape.samples * shape.heads, shape.context);
  Arena arena(size_t{1} << 28);
  const ConstQkv inputs = split_qkv(shape, ConstTensor(whole.inputs));
  causal_attention(shape, inputs, whole.output, lse, arena);
  causal_attention_backward(shape, inputs, whole.output, lse, whole.output_gradient,
                            split_qkv(shape, whole.gradients.view()), arena);
  return whole;
}

HostTensor rows_of(ConstTensor all, const TokenPartition& partition) {
  HostTensor own(all.dtype, partition.count(partition.rank()), all.cols);
  int64_t row = 0;
  for (const Share& range : partition.ranges(partition.rank())) {
    for (int64_t i = 0; i < range.count; ++i, ++row) {
      for (int64_t col = 0; col < all.cols; ++col) {
        testing::set(own, row, col, testing::get(all, range.first + i, col));
      }
    }
  }
  return own;
}

void check(Mesh& mesh, const AttentionOverRanks& attention, const Problem& problem,
           const Whole& whole) {
  TokenMask mask = problem.mask;
  mask.document_starts = problem.starts;
  const TokenPartition partition(mask, mesh.place(Axis::context), mesh.size(Axis::context));
  TestPass test(problem.type);
  test.pass.mesh = &mesh;
  test.batch.partition = &partition;
  AttentionShape shape = problem.heads;
  shape.samples = 1;
  shape.context = partition.count(partition.rank());
  const HostTensor inputs = rows_of(whole.inputs, partition);
  const HostTensor output_gradient = rows_of(whole.output_gradient, partition);
  HostTensor output(problem.type, shape.context, shape.width());
  HostTensor gradients(problem.type, shape.context, problem.width());
  const ConstQkv own = split_qkv(shape, ConstTensor(inputs));
  const auto saved = attention.forward(test.pass, shape, own, output);
  attention.backward(test.pass, shape, own, output, saved, output_gradient,
                     split_qkv(shape, gradients.view()));
  const double tolerance = problem.type == DType::f64 ? 1e-12 : 2e-2;
  if (shape.context == 0) return;
  EXPECT_LT(relative_distance(output, rows_of(whole.output, partition)), tolerance);
  EXPECT_LT(relative_distance(gradients, rows_of(whole.gradients, partition)), tolerance);
}

TEST(AttentionOverRanks, EqualsAttentionOverAllTokens) {
  std::mt19937 random(11);
  std::vector<Problem> problems;
  std::vector<Whole> wholes;
  for (uint64_t i = 0; i < 60; ++i) {
    Problem& problem = problems.emplace_back(random_problem(random));
    problem.mask.document_starts = problem.starts;
    if (i % 6 == 5) problem.type = DType::bf16;
    wholes.push_back(whole_of(problem, 3 * i));
  }
  for (const int ranks : {1, 2, 3, 4, 5, 7}) {
    run_ranks(ranks, [&](const Job& job) {
      Mesh mesh(Communicator::init(job), {.context = ranks, .data = 1});
      for (size_t i = 0; i < problems.size(); ++i) {
        SCOPED_TRACE(cat(problems[i].describe(), " on rank ", job.rank, " of ", ranks));
        check(mesh, RingAttention(), problems[i], wholes[i]);
        check(mesh, HeadsAttention(), problems[i], wholes[i]);
        if (::testing::Test::HasFailure()) return;
      }
    });
  }
}

// At any time, a rank holds at most its own keys and those of two other ranks.
TEST(AttentionOverRanks, NoRankOfARingHoldsAllKeys) {
  constexpr int kRanks = 8;
  constexpr int64_t kTokens = 2048, kWidth = 64;
  run_ranks(kRanks, [&](const Job& job) {
    Mesh mesh(Communicator::init(job), {.context = kRanks, .data = 1});
    const TokenPartition partition({.samples = 1, .positions = kTokens}, job.rank, kRanks);
    TestPass test(DType::f32);
    test.pass.mesh = &mesh;
    test.batch.partition = &partition;
    const AttentionShape shape{
        .samples = 1, .context = partition.count(job.rank), .heads = 1, .head_size = kWidth};
    const HostTensor inputs = random_tensor(DType::f32, shape.context, 3 * kWidth, 1);
    const HostTensor output(DType::f32, shape.context, kWidth);
    const auto bytes = [](int64_t rows, int64_t cols) {
      return static_cast<double>(rows * cols) * sizeof(float);
    };
    RingAttention().forward(test.pass, shape, split_qkv(shape, ConstTensor(inputs)), output);
    const auto held = static_cast<double>(mesh.message_bytes());
    EXPECT_LT(held, 0.45 * bytes(kTokens, 2 * kWidth)) << "3 of 8";
    // The arena holds only a part of the output and blocks of scores.
    EXPECT_LT(static_cast<double>(test.arena.high_water()),
              bytes(kTokens / kRanks, kWidth) + 2 * bytes(128, 128 + kWidth));
  });
}

// If heads are divided, each rank sends (p - 1) / p of its queries, keys, values and outputs. In a
// ring, each rank would send its keys and values p - 1 times; with one causal sample, a quarter of
// them is not sent, because no query attends to it.
TEST(AttentionOverRanks, BytesAreThoseOfTheFormulas) {
  constexpr int kRanks = 4;
  constexpr int64_t kTokens = 64, kHeads = 4, kSize = 8, kRows = kTokens / kRanks;
  std::vector<double> by_ring(kRanks), by_heads(kRanks);
  run_ranks(kRanks, [&](const Job& job) {
    const TokenPartition partition({.samples = 1, .positions = kTokens}, job.rank, kRanks);
    const AttentionShape shape{.samples = 1, .context = kRows, .heads = kHeads, .head_size = kSize};
    const HostTensor inputs = random_tensor(DType::f32, kRows, 3 * shape.width(), 1);
    const HostTensor output(DType::f32, kRows, shape.width());
    Mesh mesh(Communicator::init(job), {.context = kRanks, .data = 1});
    const auto sent_by = [&](const AttentionOverRanks& attention) {
      TestPass test(DType::f32);
      test.pass.mesh = &mesh;
      test.batch.partition = &partition;
      const double before = mesh.unit_traffic().bytes[static_cast<size_t>(Axis::context)];
      attention.forward(test.pass, shape, split_qkv(shape, ConstTensor(inputs)), output);
      return mesh.unit_traffic().bytes[static_cast<size_t>(Axis::context)] - before;
    };
    by_ring[static_cast<size_t>(job.rank)] = sent_by(RingAttention());
    by_heads[static_cast<size_t>(job.rank)] = sent_by(HeadsAttention());
  });
  const double rows = kRows * kHeads * kSize * sizeof(float);
  double ring = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(by_heads[static_cast<size_t>(rank)], 4 * rows * (kRanks - 1) / kRanks);
    ring += by_ring[static_cast<size_t>(rank)];
  }
  EXPECT_EQ(ring, 0.75 * kRanks * (kRanks - 1) * 2 * rows);
}

}  // namespace
}  // namespace tutti::training
