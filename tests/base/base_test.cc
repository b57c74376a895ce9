// Tests small parts of base/: text, types, errors, time, abort, and file descriptors.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/abort.h"
#include "base/buffer.h"
#include "base/deadline.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/median.h"
#include "base/memory_range.h"
#include "base/processors.h"
#include "base/reduce_op.h"
#include "base/text.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Median, MedianAndPercentiles) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({5, 1, 3}), 3);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  const std::vector<double> ten = {10, 1, 9, 2, 8, 3, 7, 4, 6, 5};
  EXPECT_EQ(percentile({}, 0.9), 0);
  EXPECT_EQ(percentile({7}, 0.9), 7);
  EXPECT_EQ(percentile(ten, 0.9), 9);
  EXPECT_EQ(percentile(ten, 0.91), 10);
  EXPECT_EQ(percentile(ten, 0), 1);
  EXPECT_EQ(percentile(ten, 1), 10);
}

TEST(TextTest, Cat) { EXPECT_EQ(cat("rank ", 3, " of ", 4), "rank 3 of 4"); }

TEST(TextTest, RankRanges) {
  EXPECT_EQ(rank_ranges({}), "");
  EXPECT_EQ(rank_ranges({4}), "4");
  EXPECT_EQ(rank_ranges({0, 1}), "0,1");
  EXPECT_EQ(rank_ranges({0, 1, 2, 5}), "0-2,5");
  EXPECT_EQ(rank_ranges({0, 2, 3, 4, 7, 8}), "0,2-4,7,8");
}

TEST(TextTest, HumanBytes) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(uint64_t{64} << 20), "64 MiB");
}

TEST(TextTest, ParseBytes) {
  EXPECT_EQ(parse_bytes("1024"), 1024);
  EXPECT_EQ(parse_bytes("64K"), 65536);
  EXPECT_EQ(parse_bytes("64k"), 65536);
  EXPECT_EQ(parse_bytes("1MiB"), 1 << 20);
  EXPECT_EQ(parse_bytes("2GB"), uint64_t{2} << 30);
  EXPECT_EQ(parse_bytes("7B"), 7);
  for (const char* wrong : {"", "K", "-1", "1.5K", "64X", "64KK", "64 K", "99999999999T"}) {
    EXPECT_THROW(parse_bytes(wrong), Error) << wrong;
  }
}

TEST(TextTest, Split) {
  EXPECT_THAT(split("a,b,c", ','), ElementsAre("a", "b", "c"));
  EXPECT_THAT(split(",a,,b,", ','), ElementsAre("a", "b")) << "empty parts are left out";
  EXPECT_THAT(split("", ','), IsEmpty());
}

TEST(TextTest, Nearest) {
  const std::vector<std::string> names = {"ring", "naive", "recursive_doubling"};
  EXPECT_EQ(nearest("rnig", names), "ring");
  EXPECT_EQ(nearest("recursive-doubling", names), "recursive_doubling");
  EXPECT_EQ(nearest("butterfly", names), "");
  EXPECT_EQ(nearest("xor", {"bor", "bxor"}), "bxor");
}

TEST(DTypeTest, NamesParseBack) {
  for (DType type : kAllDTypes) EXPECT_EQ(parse_dtype(name(type)), type);
  for (ReduceOp op : kAllReduceOps) EXPECT_EQ(parse_reduce_op(name(op)), op);
}

TEST(DTypeTest, SpellingsOfOtherLibraries) {
  EXPECT_EQ(parse_dtype("float32"), DType::f32);
  EXPECT_EQ(parse_dtype("bfloat16"), DType::bf16);
  EXPECT_EQ(parse_dtype("half"), DType::f16);
  EXPECT_EQ(parse_dtype("uint8"), DType::u8);
  EXPECT_EQ(parse_dtype("float8_e4m3fn"), DType::f8e4m3);
  EXPECT_EQ(parse_dtype("float_int"), DType::f32_i32);
  EXPECT_EQ(parse_dtype("2int"), DType::i32_i32);
  EXPECT_EQ(parse_dtype("float33"), std::nullopt);
  EXPECT_EQ(parse_reduce_op("median"), std::nullopt);
}

TEST(DTypeTest, SizesAndKinds) {
  EXPECT_EQ(size_of(DType::i16), 2U);
  EXPECT_EQ(size_of(DType::bf16), 2U);
  EXPECT_EQ(size_of(DType::f64), 8U);
  EXPECT_EQ(size_of(DType::f8e5m2), 1U);
  EXPECT_EQ(size_of(DType::f32_i32), sizeof(ValueIndex<float, int32_t>));
  EXPECT_EQ(size_of(DType::f64_i64), sizeof(ValueIndex<double, int64_t>));
  EXPECT_FALSE(is_float(DType::f32_i32));
  for (DType type : {DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2}) {
    EXPECT_EQ(accumulator_of(type), DType::f32);
  }
  for (DType type : {DType::f32, DType::f64, DType::i8, DType::f32_i32}) {
    EXPECT_EQ(accumulator_of(type), type);
  }
  EXPECT_FALSE(is_float(DType::u64));
  EXPECT_TRUE(is_float(DType::f16));
  EXPECT_FALSE(supports(ReduceOp::bxor, DType::f32));
  EXPECT_TRUE(supports(ReduceOp::avg, DType::i8));
}

TEST(BufferTest, KnowsItsBytes) {
  std::vector<double> values(3);
  const Buffer buffer = buffer_of(std::span(values));
  EXPECT_EQ(buffer.dtype, DType::f64);
  EXPECT_EQ(buffer.bytes(), 24U);
  EXPECT_EQ(as_const(buffer).data, values.data());
}

TEST(ErrorTest, HasWhatWhereCauseAndRemedy) {
  const Error error(ErrorCode::bootstrap, "rank 2 is missing",
                    {.where = "host a", .cause = "it died", .remedy = "look at its log"});
  EXPECT_EQ(error.code(), ErrorCode::bootstrap);
  EXPECT_STREQ(error.what(),
               "rank 2 is missing [host a]; likely cause: it died; remedy: look at its log");
  EXPECT_THAT(system_error("open /x", ENOENT).what(), HasSubstr("No such file or directory"));
  for (int code = 0; code <= static_cast<int>(ErrorCode::corrupted); ++code) {
    EXPECT_NE(name(static_cast<ErrorCode>(code)), "unknown error") << code;
  }
}

TEST(DeadlineTest, PassesWhenDue) {
  EXPECT_TRUE(Deadline::after(std::chrono::nanoseconds(0)).passed());
  EXPECT_TRUE(Deadline::after(std::chrono::seconds(-1)).passed());
  EXPECT_EQ(Deadline::after(std::chrono::seconds(-1)).remaining().count(), 0);
  EXPECT_FALSE(Deadline::after(std::chrono::hours(1)).passed());
}

TEST(DeadlineTest, RemainingIsCapped) {
  EXPECT_EQ(Deadline::after(std::chrono::hours(9)).remaining(std::chrono::milliseconds(5)),
            std::chrono::milliseconds(5));
  EXPECT_EQ(Deadline::never().remaining(std::chrono::milliseconds(7)),
            std::chrono::milliseconds(7));
}

TEST(DeadlineTest, NeverDoesNotPass) {
  EXPECT_FALSE(Deadline::never().passed());
  EXPECT_FALSE(Deadline::after(std::chrono::nanoseconds::max()).passed()) << "no overflow";
}

// The expected hashes are published values of FNV-1a.
TEST(FnvTest, HasThePublishedValues) {
  static_assert(fnv("") == 0xcbf29ce484222325);
  static_assert(fnv("a") == 0xaf63dc4c8601ec8c);
  EXPECT_EQ(fnv("foobar"), 0x85944171f73967e8);
}

TEST(MemoryRangeTest, RecognizesImpossibleRanges) {
  std::vector<char> some(100);
  EXPECT_FALSE(wraps(some.data(), 100));
  EXPECT_TRUE(wraps(some.data(), UINT64_MAX));
  EXPECT_FALSE(wraps(nullptr, UINT64_MAX));
  EXPECT_TRUE(may_be_memory(some.data(), 100));
  EXPECT_FALSE(may_be_memory(some.data(), uint64_t{1} << 46));
  EXPECT_FALSE(may_be_memory(some.data(), UINT64_MAX));
  std::vector<char> large(64 << 20);
  EXPECT_TRUE(may_be_memory(large.data(), large.size()));
}

// The test restricts the CPUs in the same way as `docker --cpuset-cpus` and taskset.
TEST(ProcessorsTest, ListsTheProcessorsThatTheProcessMayRunOn) {
  std::thread bound([] {
    cpu_set_t set;
    ASSERT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
    int first = 0;
    while (!CPU_ISSET(first, &set)) ++first;
    CPU_ZERO(&set);
    CPU_SET(first, &set);
    ASSERT_EQ(::sched_setaffinity(0, sizeof set, &set), 0);
    const std::string own = own_processors();
    EXPECT_EQ(own.substr(0, own.find(' ')), cat(first));
    EXPECT_EQ(usable_processors(std::array{own}), 1);
    EXPECT_EQ(usable_processors(), 1);
  });
  bound.join();
}

TEST(ProcessorsTest, ProcessorsOfSeveralProcessesAddUp) {
  const auto usable = [](std::vector<std::string> processes) {
    return usable_processors(processes);
  };
  EXPECT_EQ(usable({"0", "1", "2-3", "3"}), 4) << "bound to different ones";
  EXPECT_EQ(usable({"0-7 quota 1.5", "0-7 quota 1.5"}), 2);
  EXPECT_EQ(usable({"0-7 quota 99"}), 8);
  EXPECT_EQ(usable({"0-7 quota 2", "0-7"}), 8);
  EXPECT_EQ(usable({}), 1);
  EXPECT_EQ(usable({"what", "-5", "3-1", ""}), 1) << "from another version";
}

TEST(AbortStateTest, FirstWriterWins) {
  AbortState state;
  EXPECT_FALSE(state.raised());
  EXPECT_NO_THROW(state.throw_if_raised());
  EXPECT_TRUE(state.raise(Error(ErrorCode::timeout, "first")));
  EXPECT_FALSE(state.raise(Error(ErrorCode::aborted, "second")));
  EXPECT_TRUE(state.raised());
  EXPECT_STREQ(state.error().what(), "first");
  EXPECT_EQ(state.error().code(), ErrorCode::timeout);
  EXPECT_THROW(state.throw_if_raised(), Error);
}

TEST(AbortStateTest, OneOfManyThreadsWinsAndWakersRunOnce) {
  for (int round = 0; round < 50; ++round) {
    AbortState state;
    std::atomic<int> woken = 0;
    std::atomic<int> winners = 0;
    state.add_waker([&] { ++woken; });
    state.add_waker([&] { ++woken; });
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        if (state.raise(Error(ErrorCode::aborted, cat("thread ", i)))) ++winners;
        EXPECT_TRUE(state.raised());
        EXPECT_THAT(state.error().what(), HasSubstr("thread "));
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(winners, 1);
    EXPECT_EQ(woken, 2);
  }
}

TEST(FdTest, ClosesItsDescriptor) {
  Fd first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(first);
  const int number = first.get();
  Fd second = std::move(first);
  EXPECT_EQ(second.get(), number);
  second.reset();
  EXPECT_FALSE(second);
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
}  // namespace tutti
