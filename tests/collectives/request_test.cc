// Tests that errors in a request are found before it is used.
#include "collectives/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 4;
std::array<float, 64> memory;  // NOLINT: used by all tests

ConstBuffer in(uint64_t count) { return {memory.data(), count, DType::f32}; }
Buffer out(uint64_t count) { return {memory.data(), count, DType::f32}; }

// Returns the error of the request, or "" if it is accepted.
std::string refusal(Request request, int rank = 1, int ranks = kRanks) {
  try {
    complete(request, rank, ranks);
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    return error.what();
  }
}

// Returns every collective with buffers of n elements per rank, and the v-variants with blocks of n
// elements.
std::vector<Request> calls_of(uint64_t n) {
  const uint64_t all = n * kRanks;  // may wrap around, as in a caller's program
  const Blocks blocks{.counts = {n, n, n, n}, .displacements = {}};
  return {Request::all_reduce(in(n), out(n), ReduceOp::sum),
          Request::all_gather(in(n), out(all)),
          Request::reduce_scatter(in(all), out(n), ReduceOp::sum),
          Request::broadcast(in(n), out(n), 1),
          Request::reduce(in(n), out(n), ReduceOp::sum, 1),
          Request::gather(in(n), out(all), 1),
          Request::scatter(in(all), out(n), 1),
          Request::all_to_all(in(all), out(all)),
          Request::scan(in(n), out(n), ReduceOp::sum),
          Request::exscan(in(n), out(n), ReduceOp::sum),
          Request::send(in(n), 2),
          Request::recv(out(n), 2),
          Request::all_gatherv(in(n), out(all), blocks),
          Request::reduce_scatterv(in(all), out(n), blocks, ReduceOp::sum),
          Request::gatherv(in(n), out(all), blocks, 1),
          Request::scatterv(in(all), blocks, out(n), 1),
          Request::all_to_allv(in(all), blocks, out(all), blocks)};
}

TEST(Request, ValidCountsAreAccepted) {
  for (const Request& request : calls_of(3)) EXPECT_EQ(refusal(request), "");
}

TEST(Request, CountsThatNoMemoryHoldsAreRefused) {
  for (const uint64_t n : {UINT64_MAX, uint64_t{1} << 63, uint64_t{1} << 62, uint64_t{1} << 61,
                           (uint64_t{1} << 62) + 1, UINT64_MAX - 4, uint64_t{1} << 48,
                           uint64_t{1} << 46, uint64_t{1} << 40}) {
    for (const Request& request : calls_of(n)) {
      // The caller's product wraps around, and the remainder is a valid count.
      const bool wrapped = request.collective == Collective::all_to_all && !request.uneven &&
                           n * kRanks / kRanks != n;
      if (wrapped) continue;
      EXPECT_THAT(refusal(request), testing::Not(testing::IsEmpty()))
          << name(request.collective) << (request.uneven ? "v" : "") << " of " << n;
    }
  }
}

TEST(Request, ErrorsNameTheArgumentAndTheValue) {
  EXPECT_THAT(refusal(Request::all_reduce(in(1), out(UINT64_MAX), ReduceOp::sum)),
              HasSubstr("18446744073709551615"));
  EXPECT_THAT(refusal(Request::all_reduce(in(uint64_t{1} << 62), out(uint64_t{1} << 62), {})),
              testing::AllOf(HasSubstr("input"), HasSubstr("4611686018427387904")));
  EXPECT_THAT(refusal(Request::send({nullptr, 7, DType::i8}, 2)),
              testing::AllOf(HasSubstr("null"), HasSubstr("7")));
  EXPECT_THAT(refusal(Request::recv(out(1), INT32_MIN)), HasSubstr("-2147483648"));
}

TEST(Request, RangesThatLeaveTheAddressSpaceAreRefused) {
  auto* const last = reinterpret_cast<void*>(UINTPTR_MAX - 15);  // NOLINT: an address
  EXPECT_THAT(refusal(Request::recv({last, 5, DType::f32}, 2)),
              HasSubstr("exceed the address space"));
}

TEST(Request, LargeRangesWithoutMemoryAreRefused) {
  constexpr size_t kBytes = 64 << 20;
  void* const range = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(range, MAP_FAILED);
  const Request whole = Request::recv({range, kBytes, DType::u8}, 2);
  EXPECT_EQ(refusal(whole), "");
  ::munmap(static_cast<std::byte*>(range) + kBytes / 2, kBytes / 2);
  EXPECT_THAT(refusal(whole), HasSubstr("not all mapped"));
  ::munmap(range, kBytes / 2);
}

TEST(Request, ArgumentsThatARankDoesNotUseAreIgnored) {
  const Blocks absurd{.counts = {UINT64_MAX, 1, UINT64_MAX}, .displacements = {UINT64_MAX}};
  const Buffer nowhere{nullptr, UINT64_MAX, DType::f32};
  Request gather = Request::gatherv(in(3), nowhere, absurd, 2);
  EXPECT_EQ(refusal(gather), "");
  complete(gather, 1, kRanks);
  EXPECT_TRUE(gather.output_blocks.empty());
  Request scatter = Request::scatterv(as_const(nowhere), absurd, out(3), 2);
  EXPECT_EQ(refusal(scatter), "");
  complete(scatter, 1, kRanks);
  EXPECT_TRUE(scatter.input_blocks.empty());
  EXPECT_EQ(refusal(Request::gatherv(in(3), nowhere, {}, 2)), "");
  // The buffer that is a single block ignores its block lengths.
  Request all_gather =
      Request::all_gatherv(in(3), out(12), {.counts = {3, 3, 3, 3}, .displacements = {}});
  all_gather.input_blocks = absurd;
  EXPECT_EQ(refusal(all_gather), "");
  EXPECT_EQ(refusal(Request::broadcast(as_const(nowhere), out(3), 2)), "");
  // A collective without a variant for uneven blocks ignores `uneven`.
  Request all_reduce = Request::all_reduce(in(3), out(3), ReduceOp::sum);
  all_reduce.uneven = true;
  all_reduce.input_blocks = absurd;
  EXPECT_EQ(refusal(all_reduce), "");
  all_reduce.output.count = 2;
  EXPECT_NE(refusal(all_reduce), "") << "not a call of no elements";
}

TEST(Request, ThereMustBeABlockForEachRank) {
  const Blocks three{.counts = {1, 1, 1}, .displacements = {}};
  EXPECT_THAT(refusal(Request::gatherv(in(1), out(3), three, 3), 3), HasSubstr("3 blocks for 4"));
  EXPECT_THAT(refusal(Request::reduce_scatterv(in(3), out(1), three, ReduceOp::sum), 3),
              HasSubstr("3 blocks for 4"));
  const Blocks displaced{.counts = {1, 1, 1, 1}, .displacements = {0}};
  EXPECT_THAT(refusal(Request::all_gatherv(in(1), out(4), displaced)),
              HasSubstr("1 displacements for 4"));
}

TEST(Request, ARankReceivesFromItselfAsMuchAsItSends) {
  const Blocks one{.counts = {1, 1, 1, 1}, .displacements = {}};
  const Blocks two{.counts = {1, 2, 1, 1}, .displacements = {}};
  EXPECT_THAT(refusal(Request::all_to_allv(in(5), two, out(4), one)), HasSubstr("sends itself 2"));
  EXPECT_EQ(refusal(Request::all_to_allv(in(5), two, out(5), two)), "");
}

}  // namespace
}  // namespace tutti
