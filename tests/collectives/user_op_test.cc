// Tests user-defined operators. If an operator is not commutative, values of lower ranks must be
// left operands.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/program/algorithm.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

using testing::run_ranks;

std::vector<std::string> canonical_algorithms(Collective collective, int ranks) {
  std::vector<std::string> names = {"auto"};
  for (const Algorithm* algorithm : algorithms_for(collective)) {
    const bool fits = algorithm->supports({.ranks = ranks, .layout = Layout()}).empty();
    if (fits && algorithm->grade == Grade::canonical) names.push_back(algorithm->name);
  }
  return names;
}

// (a, b) is the map x -> a x + b; the operator composes maps.
using Matrix = std::array<uint64_t, 2>;
Matrix product(const Matrix& x, const Matrix& y) { return {x[0] * y[0], x[0] * y[1] + x[1]}; }

// Concatenates words. A value has up to seven letters, and their number in the highest byte;
// further letters are dropped.
uint64_t append(uint64_t x, uint64_t y) {
  constexpr uint64_t kLetters = (uint64_t{1} << 56) - 1;
  const uint64_t length = x >> 56;
  const uint64_t total = std::min<uint64_t>(7, length + (y >> 56));
  const uint64_t shifted = length >= 7 ? 0 : (y & kLetters) << (8 * length) & kLetters;
  return total << 56 | (x & kLetters) | shifted;
}

template <typename T>
Reduction user_op(T (*combine)(T, T)) {
  return Reduction::user(std::make_shared<const UserOp>(
      UserOp{.combine =
                 [combine](void* dst, const void* a, const void* b, uint64_t count, DType) {
                   for (uint64_t i = 0; i < count; ++i) {
                     T left;
                     T right;
                     std::memcpy(&left, static_cast<const T*>(a) + i, sizeof(T));
                     std::memcpy(&right, static_cast<const T*>(b) + i, sizeof(T));
                     const T result = combine(left, right);
                     std::memcpy(static_cast<T*>(dst) + i, &result, sizeof(T));
                   }
                 },
             .commutative = false}));
}

template <typename T>
void check_user_op(Communicator& comm, DType dtype, T (*combine)(T, T),
                   const std::function<T(int, uint64_t)>& value) {
  constexpr uint64_t kElements = 3001;
  const auto upto = [&](int end, uint64_t i) {
    T result = value(0, i);
    for (int r = 1; r < end; ++r) result = combine(result, value(r, i));
    return result;
  };
  for (const Collective collective :
       {Collective::all_reduce, Collective::reduce, Collective::scan, Collective::exscan}) {
    for (const std::string& algorithm : canonical_algorithms(collective, comm.size())) {
      std::vector<T> input(kElements);
      std::vector<T> output(kElements);
      for (uint64_t i = 0; i < kElements; ++i) input[i] = value(comm.rank(), i);
      comm.run({.collective = collective,
                .input = {input.data(), kElements, dtype},
                .output = {output.data(), kElements, dtype},
                .op = user_op(combine)},
               {.algorithm = algorithm});
      const int combined = collective == Collective::scan                         ? comm.rank() + 1
                           : collective == Collective::exscan                     ? comm.rank()
                           : collective == Collective::reduce && comm.rank() != 0 ? 0
                                                                                  : comm.size();
      uint64_t wrong = 0;
      for (uint64_t i = 0; i < kElements && combined > 0; ++i) {
        wrong += output[i] == upto(combined, i) ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0) << name(collective) << " by " << algorithm;
    }
  }
}

class UserOperator : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Ranks, UserOperator, ::testing::Values(2, 3, 5, 8, 16),
                         [](const auto& info) { return std::to_string(info.param); });

TEST_P(UserOperator, SeesTheRanksInOrder) {
  run_ranks(GetParam(), [](const Job& job) {
    Communicator comm = Communicator::init(job);
    check_user_op<uint64_t>(
        comm, DType::u64, [](uint64_t x, uint64_t y) { return append(x, y); },
        [](int rank, uint64_t i) {
          const uint64_t letter = 'a' + (rank + i) % 26;
          return i % 3 == 0 && rank % 2 == 1 ? 0 : uint64_t{1} << 56 | letter;
        });
    check_user_op<Matrix>(
        comm, DType::i64_i64, [](Matrix x, Matrix y) { return product(x, y); },
        [](int rank, uint64_t i) {
          return Matrix{2 * i + rank + 1, 3 * i + 7 * rank};
        });
  });
}

// Tests values of kBytes bytes, which must never be divided.
template <size_t kBytes>
void check_wide_values(Communicator& comm) {
  constexpr uint64_t kValues = 1009;
  using Value = std::array<uint8_t, kBytes>;
  static_assert(sizeof(Value) == kBytes);
  // The operator adds values byte by byte, and checks that all bytes of a value are equal, which
  // would not hold if a value were divided.
  const auto op = Reduction::user(std::make_shared<const UserOp>(UserOp{
      .combine =
          [](void* dst, const void* a, const void* b, uint64_t count, DType) {
            ASSERT_EQ(count % kBytes, 0);
            for (uint64_t i = 0; i < count / kBytes; ++i) {
              const Value& x = static_cast<const Value*>(a)[i];
              const Value& y = static_cast<const Value*>(b)[i];
              Value sum;
              for (size_t k = 0; k < kBytes; ++k) sum[k] = static_cast<uint8_t>(x[k] + y[k]);
              ASSERT_TRUE(std::ranges::all_of(x, [&](uint8_t byte) { return byte == x[0]; }));
              static_cast<Value*>(dst)[i] = sum;
            }
          },
      .commutative = kBytes % 2 == 0,
      .width = kBytes}));
  const auto p = static_cast<size_t>(comm.size());
  const auto values = [](int rank, uint64_t count) {
    std::vector<Value> made(count);
    for (uint64_t i = 0; i < count; ++i) made[i].fill(static_cast<uint8_t>(rank + i));
    return made;
  };
  const auto sums = [&](int ranks, uint64_t first, uint64_t count) {
    std::vector<Value> made(count);
    for (uint64_t i = 0; i < count; ++i) {
      made[i].fill(static_cast<uint8_t>(ranks * (ranks - 1) / 2 + ranks * (first + i)));
    }
    return made;
  };
  const auto bytes = [](auto& of) { return Buffer{of.data(), of.size() * kBytes, DType::u8}; };
  const auto rank = static_cast<size_t>(comm.rank());
  std::vector<Value> in = values(comm.rank(), kValues);
  std::vector<Value> out(kValues);
  comm.all_reduce(as_const(bytes(in)), bytes(out), op);
  EXPECT_EQ(out, sums(comm.size(), 0, kValues));
  comm.scan(as_const(bytes(in)), bytes(out), op);
  EXPECT_EQ(out, sums(comm.rank() + 1, 0, kValues));
  in = values(comm.rank(), kValues * p);
  comm.reduce_scatter(as_const(bytes(in)), bytes(out), op);
  EXPECT_EQ(out, sums(comm.size(), rank * kValues, kValues));

  Blocks blocks;
  uint64_t before = 0;
  for (size_t r = 0; r < p; ++r) blocks.counts.push_back((r + 3) * kBytes);
  for (size_t r = 0; r < rank; ++r) before += r + 3;
  in = values(comm.rank(), p * 3 + p * (p - 1) / 2);
  out.assign(rank + 3, {});
  comm.reduce_scatterv(as_const(bytes(in)), bytes(out), blocks, op);
  EXPECT_EQ(out, sums(comm.size(), before, rank + 3));
}

TEST_P(UserOperator, CombinesValuesOfAnySize) {
  run_ranks(GetParam(), [](const Job& job) {
    Communicator comm = Communicator::init(job);
    check_wide_values<3>(comm);
    check_wide_values<24>(comm);
    check_wide_values<40>(comm);
    check_wide_values<256>(comm);
  });
}

TEST(WideValues, MessagesDoNotSplitWideValues) {
  Communicator alone = Communicator::init(Job{});
  std::vector<uint8_t> values(100, 1);
  const Buffer buffer = buffer_of(std::span(values));
  const auto op_of = [](uint64_t width) {
    const auto nothing = [](void*, const void*, const void*, uint64_t, DType) {};
    return Reduction::user(
        std::make_shared<const UserOp>(UserOp{.combine = nothing, .width = width}));
  };
  alone.all_reduce(as_const(buffer), buffer, op_of(20));
  EXPECT_THROW(alone.all_reduce(as_const(buffer), buffer, op_of(24)), Error);
  EXPECT_THROW(alone.all_reduce(as_const(buffer), buffer, op_of(0)), Error);
  EXPECT_THROW(alone.all_reduce(as_const(buffer), buffer, op_of(300)), Error);
}

TEST(OrderedOperator, UsesOnlyCanonicalAlgorithms) {
  run_ranks(3, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    std::vector<uint64_t> values(100, 1);
    const Buffer buffer = buffer_of(std::span(values));
    const Reduction ordered = user_op<uint64_t>([](uint64_t x, uint64_t y) { return x + y; });
    EXPECT_THROW(comm.all_reduce(as_const(buffer), buffer, ordered, {.algorithm = "ring"}), Error);
    UserOp any = *ordered.function;
    any.commutative = true;
    comm.all_reduce(as_const(buffer), buffer, Reduction::user(std::make_shared<const UserOp>(any)),
                    {.algorithm = "ring"});
    EXPECT_EQ(values, std::vector<uint64_t>(100, 3));
  });
}

}  // namespace
}  // namespace tutti
