// Tests means (ReduceOp::avg). They must be finite if the values are finite; otherwise they must be
// the divided sum.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "bench/pattern.h"
#include "bench/rounding.h"
#include "collectives/communicator.h"
#include "collectives/program/algorithm.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

using testing::run_ranks;
using Bytes = std::vector<std::byte>;

constexpr uint64_t kCount = 523;
constexpr DType kFloats[] = {DType::f16, DType::bf16,   DType::f32,
                             DType::f64, DType::f8e4m3, DType::f8e5m2};
constexpr DType kNarrow[] = {DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2};

double largest(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 65504;
    case DType::bf16:
      return std::ldexp(255.0, 120);
    case DType::f8e4m3:
      return 448;
    case DType::f8e5m2:
      return 57344;
    case DType::f32:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

std::vector<const Algorithm*> algorithms_on(Collective collective, int ranks) {
  std::vector<const Algorithm*> found;
  for (const Algorithm* algorithm : algorithms_for(collective)) {
    const Shape shape{.ranks = ranks, .layout = Layout()};
    if (algorithm->supports(shape).empty()) found.push_back(algorithm);
  }
  return found;
}

// Returns the number of ranks whose inputs the result on this rank combines; 0 if there is no
// result.
int combined_on(Collective collective, const Communicator& comm) {
  switch (collective) {
    case Collective::scan:
      return comm.rank() + 1;
    case Collective::exscan:
      return comm.rank();
    case Collective::reduce:
      return comm.rank() == 0 ? comm.size() : 0;
    default:
      return comm.size();
  }
}

Bytes result_of(Communicator& comm, const Algorithm& algorithm, DType dtype, ReduceOp op,
                Bytes input) {
  const bool scatters = algorithm.collective == Collective::reduce_scatter;
  const uint64_t count = input.size() / size_of(dtype);
  const uint64_t results = scatters ? count / static_cast<uint64_t>(comm.size()) : count;
  Bytes output(results * size_of(dtype));
  comm.run({.collective = algorithm.collective,
            .input = {input.data(), count, dtype},
            .output = {output.data(), results, dtype},
            .op = op},
           {.algorithm = algorithm.name});
  return output;
}

uint64_t input_count(Collective collective, const Communicator& comm) {
  return collective == Collective::reduce_scatter ? kCount * static_cast<uint64_t>(comm.size())
                                                  : kCount;
}

Bytes filled(DType dtype, uint64_t count, double value) {
  Bytes bytes(count * size_of(dtype));
  for (uint64_t i = 0; i < count; ++i) bench::store(dtype, bytes.data(), i, value);
  return bytes;
}

template <typename Body>
void for_each_algorithm(Communicator& comm, Body&& body) {
  for (const Collective collective :
       {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter, Collective::scan,
        Collective::exscan}) {
    for (const Algorithm* algorithm : algorithms_on(collective, comm.size())) {
      SCOPED_TRACE(std::string(name(collective)) + " by " + algorithm->name);
      body(*algorithm);
    }
  }
}

// All inputs are the largest finite value. Expects the mean to be the same value.
void expect_largest(Communicator& comm, const Algorithm& algorithm, DType dtype) {
  const uint64_t count = input_count(algorithm.collective, comm);
  for (const double sign : {1.0, -1.0}) {
    const Bytes input = filled(dtype, count, sign * largest(dtype));
    const Bytes output = result_of(comm, algorithm, dtype, ReduceOp::avg, input);
    if (combined_on(algorithm.collective, comm) == 0) continue;
    EXPECT_TRUE(std::memcmp(output.data(), input.data(), output.size()) == 0) << name(dtype);
  }
}

TEST(Means, MeanOfTwoLargestValuesIsFinite) {
  run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    for_each_algorithm(comm, [&](const Algorithm& algorithm) {
      for (const DType dtype : kFloats) expect_largest(comm, algorithm, dtype);
    });
  });
}

class MeansOn : public ::testing::TestWithParam<int> {};

// Sums are kept in accumulators, which can hold any sum of f16 or of 8-bit floats.
TEST_P(MeansOn, TheLargestOfNarrowTypesByCanonicalAlgorithms) {
  run_ranks(GetParam(), [](const Job& job) {
    Communicator comm = Communicator::init(job);
    for_each_algorithm(comm, [&](const Algorithm& algorithm) {
      if (algorithm.grade != Grade::canonical) return;
      for (const DType dtype : {DType::f16, DType::f8e4m3, DType::f8e5m2}) {
        expect_largest(comm, algorithm, dtype);
      }
    });
  });
}

// All canonical algorithms must give the bits of the canonical sum, divided and rounded once.
TEST_P(MeansOn, RoundsMeansOnce) {
  run_ranks(GetParam(), [](const Job& job) {
    Communicator comm = Communicator::init(job);
    for_each_algorithm(comm, [&](const Algorithm& algorithm) {
      const int combined = combined_on(algorithm.collective, comm);
      if (algorithm.grade != Grade::canonical) return;
      for (const DType dtype : kNarrow) {
        const uint64_t count = input_count(algorithm.collective, comm);
        Bytes input(count * size_of(dtype));
        bench::fill_rounding(dtype, ReduceOp::avg, comm.size(), comm.rank(), 0, count,
                             input.data());
        const Bytes output = result_of(comm, algorithm, dtype, ReduceOp::avg, input);
        if (combined == 0) continue;
        const bool scatters = algorithm.collective == Collective::reduce_scatter;
        Bytes wanted(kCount * size_of(dtype));
        bench::fill_canonical(dtype, ReduceOp::avg, comm.size(), combined,
                              scatters ? kCount * static_cast<uint64_t>(comm.rank()) : 0, kCount,
                              wanted.data());
        EXPECT_TRUE(output == wanted) << name(dtype);
      }
    });
  });
}

// For f32 and f64 of any magnitude down to the smallest subnormal, the bits must be those of the
// divided sum.
TEST_P(MeansOn, DividesTheSum) {
  run_ranks(GetParam(), [](const Job& job) {
    Communicator comm = Communicator::init(job);
    for_each_algorithm(comm, [&](const Algorithm& algorithm) {
      const int combined = combined_on(algorithm.collective, comm);
      for (const DType dtype : {DType::f32, DType::f64}) {
        const uint64_t count = input_count(algorithm.collective, comm);
        const int least = dtype == DType::f32 ? -149 : -1074;
        Bytes input(count * size_of(dtype));
        for (uint64_t i = 0; i < count; ++i) {
          const auto odd =
              static_cast<double>(2 * ((i * 7 + static_cast<uint64_t>(comm.rank()) * 3) % 50) + 1);
          const int exponent = least + static_cast<int>(i * 31 % 200);
          bench::store(dtype, input.data(), i, std::ldexp(i % 3 == 0 ? -odd : odd, exponent));
        }
        const Bytes means = result_of(comm, algorithm, dtype, ReduceOp::avg, input);
        const Bytes sums = result_of(comm, algorithm, dtype, ReduceOp::sum, input);
        if (combined == 0) continue;
        const auto divided = [&]<typename T>(T) {
          Bytes all = sums;
          for (size_t at = 0; at < all.size(); at += sizeof(T)) {
            T value;
            std::memcpy(&value, &all[at], sizeof(T));
            value /= static_cast<T>(combined);
            std::memcpy(&all[at], &value, sizeof(T));
          }
          return all;
        };
        EXPECT_TRUE(means == (dtype == DType::f32 ? divided(float{}) : divided(double{})))
            << name(dtype);
      }
    });
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, MeansOn, ::testing::Range(1, 9),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace tutti
