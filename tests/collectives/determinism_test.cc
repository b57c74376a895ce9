// Tests the bits of results that depend on the order of operations. Canonical algorithms must give
// the bits of the canonical tree, rounded once. Algorithms of grade same_bits must give equal bits
// on all ranks.
//
// The reference is computed from the definitions (collectives/program/algorithm.h), without the
// library's kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/communicator.h"
#include "collectives/program/algorithm.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

using testing::run_ranks;
using Bytes = std::vector<std::byte>;

// The count gives chunks and slices of several sizes, and a remainder.
constexpr uint64_t kCount = 3001;

// ---- elements as numbers

double load(DType dtype, const std::byte* from) {
  const auto get = [&]<typename T>(T value) {
    std::memcpy(&value, from, sizeof(T));
    return value;
  };
  if (dtype == DType::f64) return get(double{});
  if (dtype == DType::f32) return get(float{});
  return to_float(dtype, size_of(dtype) == 1 ? get(uint8_t{}) : get(uint16_t{}));
}

// Stores `value` rounded to the type.
void store(DType dtype, std::byte* to, double value) {
  const auto put = [&](auto converted) { std::memcpy(to, &converted, sizeof(converted)); };
  if (dtype == DType::f64) return put(value);
  const auto narrow = static_cast<float>(value);
  if (dtype == DType::f32) return put(narrow);
  if (size_of(dtype) == 2) return put(from_float(dtype, narrow));
  put(static_cast<uint8_t>(from_float(dtype, narrow)));
}

// Returns pseudo-random bits.
uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = (a + 1) * 0x9e3779b97f4a7c15 + (b + 1) * 0xd1b54a32d192ed03;
  x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 32) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

// Returns numbers of both signs and of many magnitudes. In every third element, the numbers of two
// ranks cancel, so that a smaller number that was added to one of them before is lost.
double draw(DType dtype, int rank, int ranks, uint64_t index) {
  const int largest = size_of(dtype) == 1 ? 4 : dtype == DType::f16 ? 9 : 30;
  if (index % 3 == 0 && ranks > 2) {
    const int one = static_cast<int>(index) % ranks;
    const int other = (one + 1 + static_cast<int>(index / 3) % (ranks - 1)) % ranks;
    if (rank == one) return std::ldexp(1.5, largest);
    if (rank == other) return -std::ldexp(1.5, largest);
  }
  const uint64_t bits = mix(index, rank);
  const double mantissa = 1 + std::ldexp(static_cast<double>(bits >> 12), -52);
  const int exponent = static_cast<int>(bits % (2 * largest)) - largest;
  return std::ldexp(bits >> 11 & 1 ? mantissa : -mantissa, exponent);
}

Bytes input_of(DType dtype, int rank, int ranks, uint64_t count) {
  const uint64_t size = size_of(dtype);
  Bytes bytes(count * size);
  for (uint64_t i = 0; i < count; ++i) {
    store(dtype, bytes.data() + i * size, draw(dtype, rank, ranks, i));
  }
  return bytes;
}

// ---- the canonical tree

// Combines ranks begin to end - 1, divided at the largest power of two below their number.
template <typename T>
T canonical(const std::function<T(int)>& leaf, const std::function<T(T, T)>& combine, int begin,
            int end) {
  if (end - begin == 1) return leaf(begin);
  const int middle =
      begin + static_cast<int>(std::bit_floor(static_cast<unsigned>(end - begin - 1)));
  return combine(canonical<T>(leaf, combine, begin, middle),
                 canonical<T>(leaf, combine, middle, end));
}

// Returns the addition in the accumulator type.
std::function<double(double, double)> addition(DType dtype) {
  return [dtype](double a, double b) {
    return dtype == DType::f64 ? a + b : static_cast<float>(a) + static_cast<float>(b);
  };
}

// Returns the canonical sum of the inputs of ranks 0 to combined - 1, rounded once.
Bytes canonical_sum(DType dtype, int ranks, int combined, uint64_t first, uint64_t count) {
  const uint64_t size = size_of(dtype);
  Bytes bytes(count * size);
  std::array<std::byte, 8> element{};
  for (uint64_t i = 0; i < count; ++i) {
    const std::function<double(int)> leaf = [&](int rank) {
      store(dtype, element.data(), draw(dtype, rank, ranks, first + i));
      return load(dtype, element.data());
    };
    store(dtype, bytes.data() + i * size, canonical(leaf, addition(dtype), 0, combined));
  }
  return bytes;
}

// ---- calls

struct Sum {
  Collective collective;
  DType dtype;
  uint64_t count = kCount;
};

uint64_t inputs(const Sum& sum, int ranks) {
  return sum.collective == Collective::reduce_scatter ? sum.count * ranks : sum.count;
}

// Returns the output of this rank, or an empty array if it has none.
Bytes run(Communicator& comm, const Sum& sum, const CallOptions& options) {
  const Bytes input = input_of(sum.dtype, comm.rank(), comm.size(), inputs(sum, comm.size()));
  Bytes output(sum.count * size_of(sum.dtype));
  Request request{.collective = sum.collective,
                  .input = {input.data(), inputs(sum, comm.size()), sum.dtype},
                  .output = {output.data(), sum.count, sum.dtype},
                  .root = has_root(sum.collective) ? comm.size() - 1 : 0};
  comm.run(request, options);
  const bool has_none = (sum.collective == Collective::reduce && comm.rank() != request.root) ||
                        (sum.collective == Collective::exscan && comm.rank() == 0);
  return has_none ? Bytes() : output;
}

Bytes expected(const Sum& sum, int rank, int ranks) {
  if (sum.collective == Collective::reduce && rank != ranks - 1) return {};
  if (sum.collective == Collective::exscan && rank == 0) return {};
  const int combined = sum.collective == Collective::scan     ? rank + 1
                       : sum.collective == Collective::exscan ? rank
                                                              : ranks;
  const uint64_t first = sum.collective == Collective::reduce_scatter ? rank * sum.count : 0;
  return canonical_sum(sum.dtype, ranks, combined, first, sum.count);
}

std::vector<const Algorithm*> algorithms_on(Collective collective, int ranks) {
  std::vector<const Algorithm*> fit;
  for (const Algorithm* algorithm : algorithms_for(collective)) {
    if (algorithm->supports({.ranks = ranks, .layout = Layout()}).empty()) fit.push_back(algorithm);
  }
  return fit;
}

class Determinism : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Ranks, Determinism, ::testing::Values(2, 3, 5, 8, 16),
                         [](const auto& info) { return std::to_string(info.param); });

TEST_P(Determinism, CanonicalAlgorithmsGiveTheTreesBits) {
  run_ranks(GetParam(), [](const Job& job) {
    Communicator comm = Communicator::init(job);
    for (const Collective collective : kCollectivesWithAlgorithms) {
      if (!reduces(collective)) continue;
      for (const DType dtype :
           {DType::f32, DType::f64, DType::bf16, DType::f16, DType::f8e4m3, DType::f8e5m2}) {
        const Sum sum{
            .collective = collective,
            .dtype = dtype,
            .count = collective == Collective::reduce_scatter ? kCount / job.size : kCount};
        const Bytes wanted = expected(sum, comm.rank(), comm.size());
        for (const Algorithm* algorithm : algorithms_on(collective, comm.size())) {
          if (algorithm->grade < Grade::canonical) continue;
          EXPECT_TRUE(run(comm, sum, {.algorithm = algorithm->name}) == wanted)
              << name(collective) << " by " << algorithm->name << " of " << name(dtype);
        }
        EXPECT_TRUE(run(comm, sum, {.deterministic = true}) == wanted)
            << name(collective) << " of " << name(dtype);
      }
    }
  });
}

// Some algorithms round at every hop. Their results, too, must be equal on all ranks.
TEST_P(Determinism, AllRanksHaveTheSameBits) {
  run_ranks(GetParam(), [](const Job& job) {
    Communicator comm = Communicator::init(job);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f8e5m2}) {
      const Sum sum{.collective = Collective::all_reduce, .dtype = dtype};
      for (const Algorithm* algorithm : algorithms_on(sum.collective, comm.size())) {
        if (algorithm->grade < Grade::same_bits) continue;
        const Bytes mine = run(comm, sum, {.algorithm = algorithm->name});
        Bytes all(mine.size() * comm.size());
        comm.all_gather({mine.data(), mine.size(), DType::u8}, {all.data(), all.size(), DType::u8});
        const bool same = std::memcmp(all.data(), mine.data(), mine.size()) == 0;
        EXPECT_TRUE(same) << algorithm->name << " of " << name(dtype) << ": rank " << job.rank
                          << " differs from rank 0";
      }
    }
  });
}

// The tests above are meaningful only if the inputs give different bits for different orders.
TEST(Inputs, DistinguishOrders) {
  for (const int ranks : {3, 5, 8, 16}) {
    run_ranks(ranks, [](const Job& job) {
      Communicator comm = Communicator::init(job);
      for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::f8e4m3}) {
        const Sum sum{.collective = Collective::all_reduce, .dtype = dtype};
        EXPECT_FALSE(run(comm, sum, {.algorithm = "ring"}) == expected(sum, job.rank, job.size))
            << name(dtype) << " on " << job.size;
      }
    });
  }
}

TEST(DeterministicSetting, RefusesOtherAlgorithmsByName) {
  settings().set("TUTTI_DETERMINISTIC", "1");
  run_ranks(3, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    const Sum sum{.collective = Collective::all_reduce, .dtype = DType::f32};
    try {
      run(comm, sum, {.algorithm = "ring"});
      ADD_FAILURE() << "ring is not canonical";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("ring"));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("canonical"));
    }
    EXPECT_TRUE(run(comm, sum, {}) == expected(sum, job.rank, job.size));
  });
  settings().set("TUTTI_DETERMINISTIC", "0");
}

// ---- special numbers and operators

TEST_P(Determinism, PremultipliedSumRoundsEachProduct) {
  run_ranks(GetParam(), [](const Job& job) {
    Communicator comm = Communicator::init(job);
    const auto factor = [](int rank) { return 1.0 / (rank + 3); };
    for (const DType dtype : {DType::f32, DType::f64}) {
      const uint64_t size = size_of(dtype);
      const Bytes input = input_of(dtype, job.rank, job.size, kCount);
      Bytes output(input.size());
      comm.all_reduce({input.data(), kCount, dtype}, {output.data(), kCount, dtype},
                      Reduction::premul_sum(factor(job.rank)), {.deterministic = true});
      Bytes wanted(input.size());
      for (uint64_t i = 0; i < kCount; ++i) {
        const std::function<double(int)> leaf = [&](int rank) {
          const double value = draw(dtype, rank, job.size, i);
          if (dtype == DType::f64) return value * factor(rank);
          // The factor is rounded to float too.
          return double{static_cast<float>(value) * static_cast<float>(factor(rank))};
        };
        store(dtype, wanted.data() + i * size, canonical(leaf, addition(dtype), 0, job.size));
      }
      EXPECT_TRUE(output == wanted) << name(dtype);
    }
  });
}

TEST_P(Determinism, AverageIsTheSumDividedOnce) {
  run_ranks(GetParam(), [](const Job& job) {
    Communicator comm = Communicator::init(job);
    std::vector<float> values(kCount);
    const Bytes input = input_of(DType::f32, job.rank, job.size, kCount);
    std::memcpy(values.data(), input.data(), input.size());
    const Buffer buffer = buffer_of(std::span(values));
    comm.all_reduce(as_const(buffer), buffer, ReduceOp::avg, {.deterministic = true});
    const Bytes sums = canonical_sum(DType::f32, job.size, job.size, 0, kCount);
    std::vector<int32_t> whole = {7 * (job.rank + 1), -7 * (job.rank + 1)};
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < kCount; ++i) {
      const auto sum = static_cast<float>(load(DType::f32, sums.data() + i * sizeof(float)));
      wrong += values[i] == sum / static_cast<float>(job.size) ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0);
    const Buffer integers = buffer_of(std::span(whole));
    comm.all_reduce(as_const(integers), integers, ReduceOp::avg);
    const int32_t sum = 7 * job.size * (job.size + 1) / 2;
    EXPECT_EQ(whole, (std::vector<int32_t>{sum / job.size, -sum / job.size}));
  });
}

TEST_P(Determinism, NansAndInfinities) {
  run_ranks(GetParam(), [](const Job& job) {
    Communicator comm = Communicator::init(job);
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const bool first = job.rank == 0;
    const bool last = job.rank == job.size - 1;
    for (const Algorithm* algorithm : algorithms_on(Collective::all_reduce, job.size)) {
      SCOPED_TRACE(algorithm->name);
      const CallOptions options{.algorithm = algorithm->name};
      const auto result = [&](std::vector<float> values, ReduceOp op) {
        const Buffer buffer = buffer_of(std::span(values));
        comm.all_reduce(as_const(buffer), buffer, op, options);
        return values;
      };
      const std::vector<float> sums = result({last ? NAN : 1, first ? kInfinity : 1,
                                              first  ? kInfinity
                                              : last ? -kInfinity
                                                     : 1,
                                              -0.0F},
                                             ReduceOp::sum);
      EXPECT_TRUE(std::isnan(sums[0]));
      EXPECT_EQ(sums[1], kInfinity);
      EXPECT_TRUE(std::isnan(sums[2]));
      EXPECT_TRUE(sums[3] == 0 && std::signbit(sums[3]));
      for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
        const std::vector<float> best =
            result({last ? NAN : 1, first ? kInfinity : 1, first ? -kInfinity : 1}, op);
        EXPECT_TRUE(std::isnan(best[0]));
        EXPECT_EQ(best[1], op == ReduceOp::min ? 1 : kInfinity);
        EXPECT_EQ(best[2], op == ReduceOp::max ? 1 : -kInfinity);
      }
    }
  });
}

}  // namespace
}  // namespace tutti
