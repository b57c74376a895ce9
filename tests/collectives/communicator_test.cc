// Tests every collective with real data over shared memory and TCP; ranks are threads. Inputs are
// chosen so that results are exact (bench/pattern.h).
#include "collectives/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "base/settings.h"
#include "bench/pattern.h"
#include "collectives/program/algorithm.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

using bench::count_wrong;
using bench::fill_expected;
using bench::fill_pattern;
using testing::run_ranks;

// An array at an odd address, to test unaligned buffers.
class Array {
 public:
  Array(DType dtype, uint64_t count, size_t shift = 0)
      : dtype_(dtype), count_(count), shift_(shift), bytes_(count * size_of(dtype) + shift + 1) {}
  void* data() { return bytes_.data() + shift_; }
  Buffer buffer() { return {data(), count_, dtype_}; }
  ConstBuffer part(uint64_t first, uint64_t count) {
    return {bytes_.data() + shift_ + first * size_of(dtype_), count, dtype_};
  }
  Buffer part_of(uint64_t first, uint64_t count) {
    return {bytes_.data() + shift_ + first * size_of(dtype_), count, dtype_};
  }

 private:
  DType dtype_;
  uint64_t count_;
  size_t shift_;
  std::vector<std::byte> bytes_;
};

Array pattern_array(DType dtype, ReduceOp op, int ranks, int rank, uint64_t first, uint64_t count,
                    size_t shift = 0) {
  Array array(dtype, count, shift);
  fill_pattern(dtype, op, ranks, rank, first, count, array.data());
  return array;
}

Array expected_array(DType dtype, ReduceOp op, int ranks, uint64_t first, uint64_t count) {
  Array array(dtype, count);
  fill_expected(dtype, op, ranks, first, count, array.data());
  return array;
}

void check_all_reduce(Communicator& comm, DType dtype, ReduceOp op, uint64_t count,
                      std::string_view algorithm, bool in_place, size_t shift) {
  Array input = pattern_array(dtype, op, comm.size(), comm.rank(), 0, count, shift);
  Array output(dtype, count, shift);
  Array expected = expected_array(dtype, op, comm.size(), 0, count);
  Array& target = in_place ? input : output;
  const Reduction reduction =
      op == ReduceOp::premul_sum ? Reduction::premul_sum(bench::pattern_factor(comm.rank())) : op;
  comm.all_reduce(as_const(input.buffer()), target.buffer(), reduction, {.algorithm = algorithm});
  EXPECT_EQ(count_wrong(dtype, target.data(), expected.data(), count), 0)
      << algorithm << " " << name(dtype) << " " << name(op) << " count " << count << " on "
      << comm.size() << (in_place ? " in place" : "");
}

void check_all_gather(Communicator& comm, uint64_t count, bool in_place) {
  const DType type = DType::i32;
  const ReduceOp op = ReduceOp::sum;
  const int p = comm.size();
  Array input = pattern_array(type, op, p, comm.rank(), 0, count);
  Array output(type, count * p);
  Array expected(type, count * p);
  for (int r = 0; r < p; ++r)
    fill_pattern(type, op, p, r, 0, count, expected.part_of(r * count, count).data);
  ConstBuffer in = as_const(input.buffer());
  if (in_place) {
    const Buffer own = output.part_of(comm.rank() * count, count);
    if (count > 0) std::memcpy(own.data, input.data(), count * 4);
    in = as_const(own);
  }
  comm.all_gather(in, output.buffer());
  EXPECT_EQ(count_wrong(type, output.data(), expected.data(), count * p), 0) << count;
}

void check_reduce_scatter(Communicator& comm, uint64_t count, bool in_place) {
  const DType type = DType::f64;
  const ReduceOp op = ReduceOp::sum;
  const int p = comm.size();
  Array input = pattern_array(type, op, p, comm.rank(), 0, count * p);
  Array output(type, count);
  Array expected = expected_array(type, op, p, comm.rank() * count, count);
  const Buffer out = in_place ? input.part_of(comm.rank() * count, count) : output.buffer();
  comm.reduce_scatter(as_const(input.buffer()), out, op);
  EXPECT_EQ(count_wrong(type, out.data, expected.data(), count), 0) << count;
}

void check_rooted(Communicator& comm, uint64_t count, int root, bool in_place) {
  const DType type = DType::f32;
  const ReduceOp op = ReduceOp::max;
  const int p = comm.size();
  const bool is_root = comm.rank() == root;
  Array input = pattern_array(type, op, p, comm.rank(), 0, count);
  Array from_root = pattern_array(type, op, p, root, 0, count);
  Array output(type, count);
  Buffer out = in_place ? input.buffer() : output.buffer();
  comm.broadcast(is_root ? as_const(input.buffer()) : ConstBuffer{}, out, root);
  EXPECT_EQ(count_wrong(type, out.data, from_root.data(), count), 0) << "broadcast from " << root;

  input = pattern_array(type, op, p, comm.rank(), 0, count);
  out = in_place ? input.buffer() : output.buffer();
  comm.reduce(as_const(input.buffer()), is_root ? out : Buffer{}, op, root);
  Array expected = expected_array(type, op, p, 0, count);
  if (is_root) {
    EXPECT_EQ(count_wrong(type, out.data, expected.data(), count), 0) << "reduce to " << root;
  }
}

struct Layout {
  std::string transport;
  int ranks;
};

class OnLayout : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  void SetUp() override { settings().set("TUTTI_TRANSPORT", std::get<0>(GetParam())); }
  void TearDown() override { settings().set("TUTTI_TRANSPORT", "auto"); }
  int ranks() const { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(All, OnLayout,
                         ::testing::Combine(::testing::Values("shm", "tcp"),
                                            ::testing::Values(1, 2, 3, 4, 5, 7, 8, 16)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + std::to_string(std::get<1>(info.param));
                         });

TEST_P(OnLayout, AllReduceByEveryAlgorithm) {
  run_ranks(ranks(), [](const Job& job) {
    Communicator comm = Communicator::init(job);
    for (const Algorithm* algorithm : algorithms_for(Collective::all_reduce)) {
      if (!algorithm->supports({.ranks = comm.size()}).empty()) continue;
      for (const uint64_t count : {0, 1, 2, 17, 1003, 40009}) {
        for (const bool in_place : {false, true}) {
          check_all_reduce(comm, DType::f32, ReduceOp::sum, count, algorithm->name, in_place,
                           count % 4);
        }
      }
    }
  });
}

TEST_P(OnLayout, OtherCollectives) {
  run_ranks(ranks(), [](const Job& job) {
    Communicator comm = Communicator::init(job);
    for (const uint64_t count : {0, 1, 13, 1003, 20011}) {
      for (const bool in_place : {false, true}) {
        check_all_gather(comm, count, in_place);
        check_reduce_scatter(comm, count, in_place);
        for (const int root : {0, comm.size() / 2, comm.size() - 1}) {
          check_rooted(comm, count, root, in_place);
        }
      }
      comm.barrier();
    }
  });
}

TEST_P(OnLayout, PointToPointInARing) {
  run_ranks(ranks(), [](const Job& job) {
    Communicator comm = Communicator::init(job);
    if (comm.size() == 1) return;
    const int next = (comm.rank() + 1) % comm.size();
    const int previous = (comm.rank() + comm.size() - 1) % comm.size();
    for (const size_t count : {size_t{0}, size_t{1}, size_t{5}, size_t{100003}}) {
      std::vector<int32_t> out(count, comm.rank());
      std::vector<int32_t> in(count, -1);
      Work sending = comm.send_async(const_buffer_of(std::span<const int32_t>(out)), next);
      comm.recv(std::span(in), previous);
      sending.wait();
      EXPECT_EQ(in, std::vector<int32_t>(count, previous));
    }
  });
}

TEST_P(OnLayout, ManyCallsInFlightOnTwoCommunicators) {
  run_ranks(ranks(), [](const Job& job) {
    Communicator world = Communicator::init(job);
    Communicator other = world.duplicate();
    constexpr size_t kCalls = 20;
    std::vector<std::vector<int64_t>> values(2 * kCalls, std::vector<int64_t>(301));
    std::vector<Work> works;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i].assign(301, world.rank() + static_cast<int64_t>(i));
      const Buffer buffer = buffer_of(std::span(values[i]));
      // Ranks with odd numbers use the two communicators in the opposite order.
      const bool first = (i % 2 == 0) == (world.rank() % 2 == 0);
      Communicator& comm = first ? world : other;
      works.push_back(comm.all_reduce_async(as_const(buffer), buffer));
    }
    for (size_t i = works.size(); i-- > 0;) works[i].wait();
    const int64_t p = world.size();
    // On each communicator, the k-th calls of all ranks match.
    for (size_t i = 0; i < values.size(); i += 2) {
      const int64_t low = p * (p - 1) / 2 + p * static_cast<int64_t>(i);
      const int64_t odd = p / 2;
      const int64_t of_world = low + odd;
      const int64_t of_other = low + (p - odd);
      const bool even_rank = world.rank() % 2 == 0;
      EXPECT_EQ(values[i], std::vector<int64_t>(301, even_rank ? of_world : of_other));
      EXPECT_EQ(values[i + 1], std::vector<int64_t>(301, even_rank ? of_other : of_world));
    }
  });
}

TEST_P(OnLayout, SplitByParity) {
  run_ranks(ranks(), [](const Job& job) {
    Communicator world = Communicator::init(job);
    // The keys reverse the order of ranks.
    Communicator half = world.split(world.rank() % 2, -world.rank());
    const int members = (world.size() + 1 - world.rank() % 2) / 2;
    EXPECT_EQ(half.size(), members);
    EXPECT_EQ(half.rank(), members - 1 - world.rank() / 2);
    std::vector<int32_t> ranks = {world.rank()};
    half.broadcast(std::span(ranks), 0);
    EXPECT_EQ(ranks[0] % 2, world.rank() % 2);
    Communicator none = world.split(world.rank() == 0 ? 0 : -1);
    EXPECT_EQ(none.valid(), world.rank() == 0);
  });
}

class OnTransport : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { settings().set("TUTTI_TRANSPORT", GetParam()); }
  void TearDown() override { settings().set("TUTTI_TRANSPORT", "auto"); }
};

INSTANTIATE_TEST_SUITE_P(Both, OnTransport, ::testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

TEST_P(OnTransport, EveryTypeAndOperator) {
  run_ranks(3, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    for (const DType dtype : kAllDTypes) {
      for (const ReduceOp op : kAllReduceOps) {
        if (!supports(op, dtype) || op == ReduceOp::user) continue;
        check_all_reduce(comm, dtype, op, 1003, "auto", false, 1);
      }
    }
  });
}

TEST_P(OnTransport, LargeBuffers) {
  run_ranks(3, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    for (const std::string_view algorithm : {"ring", "double_binary_tree", "naive"}) {
      check_all_reduce(comm, DType::f32, ReduceOp::sum, 3'000'017, algorithm, true, 0);
    }
  });
}

TEST_P(OnTransport, MissingRankIsNamedAtTheDeadline) {
  const auto errors = testing::run_ranks_catching(3, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    if (comm.rank() == 1) {
      int32_t value = 0;  // used when this rank calls later, and calls another collective
      comm.recv(std::span(&value, 1), 0);
      return;
    }
    int32_t one = 1;
    const Buffer buffer = buffer_of(std::span(&one, 1));
    comm.all_reduce_async(as_const(buffer), buffer, ReduceOp::sum,
                          {.timeout = std::chrono::milliseconds(600)})
        .wait();
  });
  for (int r = 0; r < 3; ++r) {
    ASSERT_TRUE(errors[r].has_value()) << r;
    EXPECT_EQ(errors[r]->code(), ErrorCode::timeout) << errors[r]->what();
    EXPECT_THAT(errors[r]->what(), ::testing::HasSubstr("waiting for rank 1 ("));
  }
}

TEST_P(OnTransport, LeavingEarlyIsNamed) {
  const auto errors = testing::run_ranks_catching(2, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    if (comm.rank() == 1) return;
    comm.barrier();
  });
  ASSERT_TRUE(errors[0].has_value());
  EXPECT_FALSE(errors[1].has_value());
  EXPECT_THAT(errors[0]->what(), ::testing::HasSubstr("rank 1 ("));
}

TEST_P(OnTransport, UserAbortReachesEveryRank) {
  const auto errors = testing::run_ranks_catching(4, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    if (comm.rank() == 2) comm.abort("the disk is full");
    for (int i = 0; i < 1000; ++i) comm.barrier();
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::aborted);
    EXPECT_THAT(error->what(), ::testing::HasSubstr("the disk is full"));
  }
}

TEST(Arguments, InvalidArgumentsAreRefusedAndHarmNothing) {
  Communicator comm = Communicator::init(Job{});
  std::vector<float> values(4, 2);
  const Buffer buffer = buffer_of(std::span(values));
  EXPECT_THROW(comm.all_reduce({nullptr, 4, DType::f32}, buffer), Error);
  EXPECT_THROW(comm.all_reduce({values.data(), 3, DType::f32}, buffer), Error);
  EXPECT_THROW(comm.all_reduce({values.data(), 4, DType::i32}, buffer), Error);
  EXPECT_THROW(comm.all_reduce(as_const(buffer), buffer, ReduceOp::bxor), Error);
  EXPECT_THROW(comm.all_reduce(as_const(buffer), buffer, ReduceOp::sum, {.algorithm = "rign"}),
               Error);
  EXPECT_THROW(comm.broadcast(as_const(buffer), buffer, 1), Error);
  EXPECT_THROW(comm.send(as_const(buffer), 1), Error);
  EXPECT_THROW(comm.all_reduce({values.data(), 4, DType::f32, MemorySpace::device}, buffer), Error);
  EXPECT_THROW(Communicator().barrier(), Error);
  comm.all_reduce(std::span(values));
  EXPECT_EQ(values, std::vector<float>(4, 2));
}

TEST(AllReduce, TinyCallsAreManyAndRight) {
  run_ranks(4, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    for (int64_t i = 0; i < 3000; ++i) {
      int64_t value = i + comm.rank();
      comm.all_reduce(std::span(&value, 1));
      ASSERT_EQ(value, 4 * i + 6);
    }
  });
}

// Calls that differ only in the factor are different calls.
TEST(AllReduce, ScalesByTheFactorOfEachCall) {
  run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    for (const float factor : {2.0F, 3.0F, 3.0F, -1.0F}) {
      std::vector<float> values(8, static_cast<float>(comm.rank() + 1));
      comm.all_reduce(std::span(values), Reduction::premul_sum(factor));
      EXPECT_EQ(values, std::vector<float>(8, 3 * factor));
    }
  });
}

}  // namespace
}  // namespace tutti
