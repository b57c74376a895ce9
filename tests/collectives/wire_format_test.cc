// Tests calls whose f32 elements are sent in other formats (CallOptions::wire).
#include "base/wire_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/block_format.h"
#include "base/error.h"
#include "base/half.h"
#include "bench/layout.h"
#include "bench/measure.h"
#include "bench/pattern.h"
#include "bench/wire_reference.h"
#include "collectives/communicator.h"
#include "collectives/program/algorithm.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using testing::run_ranks;
using testing::run_ranks_catching;

constexpr std::array kBlockFormats = {WireFormat::mx8, WireFormat::mx4, WireFormat::int8,
                                      WireFormat::sign};

// Returns the values rounded once. The first value begins a block.
std::vector<float> encoded_once(BlockFormat format, std::vector<float> values) {
  const size_t count = values.size();
  const size_t block = block_of(format);
  values.resize((count + block - 1) / block * block, padding(format));
  std::vector<std::byte> bytes(bytes_of(format, values.size()));
  encode(format, values, bytes);
  decode(format, bytes, values);
  values.resize(count);
  return values;
}

std::vector<float> values_of_rank(int rank, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = std::sin(static_cast<float>(i * 7 + static_cast<size_t>(rank) * 13)) *
                static_cast<float>(1 + i % 5);
  }
  return values;
}

TEST(WireFormat, HasNamesAndBytes) {
  for (const WireFormat format : kAllWireFormats) {
    EXPECT_EQ(wire_format_named(name(format)), format);
  }
  EXPECT_EQ(wire_format_named("fp8"), WireFormat::f8e4m3);
  EXPECT_EQ(wire_format_named("bfloat16"), WireFormat::bf16);
  EXPECT_EQ(wire_format_named("i32"), std::nullopt);
  EXPECT_EQ(wire_format_named("f64"), std::nullopt);
  EXPECT_EQ(bytes_of(WireFormat::plain, 100), 400u);
  EXPECT_EQ(bytes_of(WireFormat::bf16, 101), 202u);
  EXPECT_EQ(bytes_of(WireFormat::f8e5m2, 101), 101u);
  EXPECT_EQ(bytes_of(WireFormat::mx8, 64), 66u);
  EXPECT_EQ(bytes_of(WireFormat::mx8, 65), 99u);
  EXPECT_EQ(bytes_of(WireFormat::mx4, 32), 17u);
  EXPECT_EQ(bytes_of(WireFormat::int8, 257), 520u);
  EXPECT_EQ(bytes_of(WireFormat::sign, 256), 36u);
  EXPECT_EQ(bytes_of(WireFormat::sign, 0), 0u);
}

TEST(WireFormat, ElementsHaveTheBytesOfTheirBlocks) {
  for (size_t i = 0; i < kBlockFormats.size(); ++i) {
    const auto format = static_cast<BlockFormat>(i);
    EXPECT_EQ(element_of(kBlockFormats[i]), element_of(format));
    EXPECT_EQ(values_of(element_of(format)), block_of(format));
    EXPECT_EQ(size_of(element_of(format)), bytes_of(format, block_of(format)));
    EXPECT_TRUE(is_float(element_of(format)));
    EXPECT_EQ(accumulator_of(element_of(format)), DType::f32);
  }
}

// All ranks, including the sender, must have the sender's values, rounded once.
TEST(WireFormat, ABroadcastRoundsOnce) {
  for (const size_t count : {0, 1, 31, 32, 33, 257, 1000}) {
    for (size_t i = 0; i < kBlockFormats.size(); ++i) {
      const std::vector<float> sent = values_of_rank(0, count);
      const std::vector<float> expected = encoded_once(static_cast<BlockFormat>(i), sent);
      run_ranks(3, [&](const Job& job) {
        Communicator comm = Communicator::init(job);
        std::vector<float> result(count, -1);
        comm.broadcast(sent, result, 0, {.wire = kBlockFormats[i]});
        EXPECT_EQ(result, expected) << name(kBlockFormats[i]) << ' ' << count;
      });
    }
  }
}

TEST(WireFormat, ASumOfTwoRanksIsRoundedOnce) {
  constexpr size_t kCount = 1000;
  for (size_t i = 0; i < kBlockFormats.size(); ++i) {
    const auto format = static_cast<BlockFormat>(i);
    std::vector<float> expected = encoded_once(format, values_of_rank(0, kCount));
    const std::vector<float> others = encoded_once(format, values_of_rank(1, kCount));
    for (size_t k = 0; k < expected.size(); ++k) expected[k] += others[k];
    expected = encoded_once(format, expected);
    run_ranks(2, [&](const Job& job) {
      Communicator comm = Communicator::init(job);
      std::vector<float> values = values_of_rank(job.rank, kCount);
      comm.all_reduce(values, values, ReduceOp::sum, {.wire = kBlockFormats[i]});
      EXPECT_EQ(values, expected) << name(kBlockFormats[i]);
    });
  }
}

TEST(WireFormat, OneRankRoundsToo) {
  run_ranks(1, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    std::vector<float> values = values_of_rank(0, 100);
    const std::vector<float> expected = encoded_once(BlockFormat::mx8, values);
    comm.all_reduce(values, values, ReduceOp::avg, {.wire = WireFormat::mx8});
    EXPECT_EQ(values, expected);
  });
}

TEST(WireFormat, MessagesAndFollowingCallsUseItToo) {
  run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    const std::vector<float> sent = values_of_rank(0, 100);
    std::vector<float> got(100);
    const CallOptions options{.wire = WireFormat::mx4};
    if (job.rank == 0) {
      comm.send(sent, 1, options);
    } else {
      const MessageInfo info = comm.recv(got, 0, options);
      EXPECT_EQ(info, (MessageInfo{.source = 0, .tag = 0, .dtype = DType::f32, .count = 100}));
      EXPECT_EQ(got, encoded_once(BlockFormat::mx4, sent));
    }
    // The input of the second call is the output of the first one.
    std::vector<float> values(50, static_cast<float>(job.rank + 1));
    Work first = comm.all_reduce_async(values, values, ReduceOp::sum);
    const std::array before = {first};
    Work second = comm.all_reduce_async(values, values, ReduceOp::sum,
                                        {.after = before, .wire = WireFormat::int8});
    second.wait();
    EXPECT_EQ(values, std::vector<float>(50, 6));
  });
}

TEST(WireFormat, APreparedCallEncodesAtEachStart) {
  run_ranks(3, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    std::vector<float> values(64);
    Prepared call =
        comm.prepare(Request::all_reduce(values, values, ReduceOp::sum), {.wire = WireFormat::mx8});
    for (int round = 1; round < 4; ++round) {
      std::ranges::fill(values, static_cast<float>(round));
      call.run();
      EXPECT_EQ(values, std::vector<float>(64, static_cast<float>(3 * round)));
    }
  });
}

TEST(WireFormat, NonFiniteValuesAreKept) {
  run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    std::vector<float> values(96, 1.0f);
    if (job.rank == 1) values[40] = std::numeric_limits<float>::infinity();
    comm.all_reduce(values, values, ReduceOp::sum, {.wire = WireFormat::mx8});
    EXPECT_EQ(values[0], 2);
    EXPECT_TRUE(std::isnan(values[40]));
    EXPECT_TRUE(std::isnan(values[32])) << "the whole block";
    EXPECT_EQ(values[64], 2);
  });
}

// Runs every collective and algorithm. The expected result is computed by the formula that was
// proved for the program.
class Everything : public ::testing::TestWithParam<WireFormat> {};

INSTANTIATE_TEST_SUITE_P(Formats, Everything,
                         ::testing::Values(WireFormat::bf16, WireFormat::f8e4m3, WireFormat::mx8,
                                           WireFormat::mx4, WireFormat::int8, WireFormat::sign),
                         [](const auto& info) { return std::string(name(info.param)); });

std::vector<std::string> algorithms_that_run(bench::Measurement& measurement, Collective c) {
  std::vector<std::string> names = {"auto"};
  for (const Algorithm* algorithm : algorithms_for(c)) {
    measurement.use(algorithm->name);
    try {
      if (!measurement.algorithm().empty()) names.push_back(algorithm->name);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
    }
  }
  return names;
}

void run_all(Communicator& comm, const bench::Case& c) {
  bench::Measurement measurement(comm, c);
  for (const std::string& algorithm : algorithms_that_run(measurement, c.collective)) {
    measurement.use(algorithm);
    measurement.run(0, 1);
    const bench::Digest digest = measurement.digest();
    const uint64_t wrong = measurement.count_wrong();
    EXPECT_EQ(wrong, 0u) << name(c.wire) << ' ' << bench::name(c.collective, c.uneven) << ' '
                         << algorithm << ", " << comm.size() << " ranks, " << c.bytes << " bytes";
    const Algorithm* const known = find_algorithm(c.collective, algorithm);
    if (known == nullptr || known->grade >= Grade::same_bits) {
      EXPECT_TRUE(digest.other_ranks.empty()) << algorithm;
    }
  }
}

TEST_P(Everything, RoundsAsItsFormulaSays) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    run_ranks(ranks, [&](const Job& job) {
      Communicator comm = Communicator::init(job);
      for (int i = 0; i <= static_cast<int>(Collective::exscan); ++i) {
        const auto collective = static_cast<Collective>(i);
        if (collective == Collective::barrier) continue;
        for (const uint64_t bytes :
             {uint64_t{0}, uint64_t{4} * static_cast<uint64_t>(ranks), uint64_t{20} * 1024 + 100}) {
          for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::premul_sum,
                                    ReduceOp::prod, ReduceOp::max}) {
            if (op != ReduceOp::sum && (!reduces(collective) || ranks != 3)) continue;
            bench::Case c;
            c.collective = collective;
            c.op = op;
            c.bytes = bytes;
            c.data = bench::Data::rounding;
            c.wire = GetParam();
            run_all(comm, c);
            if (op != ReduceOp::sum) continue;
            c.uneven = has_blocks(collective);
            if (c.uneven) run_all(comm, c);
          }
        }
      }
    });
  }
}

TEST_P(Everything, TheReferenceDistinguishesFormats) {
  run_ranks(2, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    bench::Case c;
    c.bytes = 40'000;
    c.data = bench::Data::rounding;
    c.wire = GetParam();
    const bench::Layout layout{
        .collective = c.collective, .ranks = 2, .count = 10'000, .uneven = {}};
    std::vector<float> values(10'000);
    bench::fill_input(c.data, DType::f32, c.op, layout, job.rank, values.data());
    const Request request = Request::all_reduce(values, values, ReduceOp::sum);
    const Prepared plain = comm.prepare(request);
    const std::vector<float> expected =
        bench::wire_reference(c.wire, c.data, c.op, layout, job.rank, plain);
    comm.run(request);
    EXPECT_GT(bench::count_wrong(DType::f32, values.data(), expected.data(), values.size()),
              5'000u);
  });
}

// The calls of the ranks have the same number of blocks, but different numbers of values.
TEST(WireFormat, RanksWithDifferentLastBlocksAreReported) {
  const std::vector<std::optional<Error>> errors = run_ranks_catching(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    std::vector<float> values(job.rank == 0 ? 250 : 256);
    comm.all_reduce(values, values, ReduceOp::sum, {.wire = WireFormat::sign});
  });
  ASSERT_TRUE(errors[0]);
  EXPECT_THAT(errors[0]->what(), HasSubstr("1 sign blocks (the last of 250 values)"));
  const std::vector<std::optional<Error>> of_messages = run_ranks_catching(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    std::vector<float> values(job.rank == 0 ? 250 : 256);
    if (job.rank == 0) {
      comm.send(values, 1, {.wire = WireFormat::sign});
      comm.barrier();
    } else {
      const MessageInfo info = comm.await_message(0);
      EXPECT_EQ(info.dtype, DType::f32);
      EXPECT_EQ(info.count, 250u);
      comm.recv(values, 0, {.wire = WireFormat::sign});
    }
  });
  ASSERT_TRUE(of_messages[1]);
  EXPECT_EQ(of_messages[1]->code(), ErrorCode::mismatch);
}

TEST(WireFormat, BlocksAreNoTypeForCallers) {
  run_ranks(1, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    std::vector<std::byte> memory(33);
    const Buffer buffer{memory.data(), 1, element_of(WireFormat::mx8)};
    EXPECT_THROW(comm.all_reduce(buffer, buffer, ReduceOp::sum, {}), Error);
  });
}

// --- misuse ---

std::string error_of(const std::function<void(Communicator&)>& call) {
  std::string text;
  run_ranks(1, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    try {
      call(comm);
    } catch (const Error& error) {
      text = error.what();
    }
  });
  return text;
}

TEST(WireFormat, RefusesUnsupportedCalls) {
  EXPECT_THAT(error_of([](Communicator& comm) {
                std::vector<double> values(4);
                comm.all_reduce(values, values, ReduceOp::sum, {.wire = WireFormat::mx8});
              }),
              HasSubstr("wire formats apply to f32 only"));
  EXPECT_THAT(error_of([](Communicator& comm) {
                std::vector<float> values(4);
                const auto op = std::make_shared<const UserOp>(
                    UserOp{.combine = [](void*, const void*, const void*, uint64_t, DType) {}});
                comm.all_reduce(values, values, Reduction::user(op), {.wire = WireFormat::mx8});
              }),
              HasSubstr("a user-defined operator cannot combine"));
}

TEST(WireFormat, RanksWithDifferentFormatsAreReported) {
  const std::vector<std::optional<Error>> errors = run_ranks_catching(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    std::vector<float> values(256);
    comm.all_reduce(
        values, values, ReduceOp::sum,
        {.algorithm = "ring", .wire = job.rank == 0 ? WireFormat::mx8 : WireFormat::sign});
  });
  for (const std::optional<Error>& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr("all_reduce of 8 mx8 blocks, sum, by ring"));
    EXPECT_THAT(error->what(), HasSubstr("all_reduce of 1 sign blocks, sum, by ring"));
  }
}

}  // namespace
}  // namespace tutti
