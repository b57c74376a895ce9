// Tests that a program gives the same bits in a kernel as on the CPU: every algorithm of the
// reducing collectives, every type and every operator. Inputs give different bits for different
// orders of operations or roundings.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/mix_bits.h"
#include "collectives/communicator.h"
#include "tests/collectives/gpu/emulated_gpus.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

using Bytes = std::vector<std::byte>;
using gpu::MailboxShape;
using gpu::Protocol;
using testing::EmulatedGpus;
using testing::GpuSetting;

// The count gives chunks and slices of several sizes, and a remainder.
constexpr uint64_t kCount = 1003;

struct Call {
  const Algorithm* algorithm = nullptr;
  DType dtype = DType::f32;
  Reduction op;
};

// Returns arbitrary bits, including NaNs and subnormals, for small types. Wider floats have all
// magnitudes but are finite, because it is unspecified which of two NaNs a sum keeps.
Bytes draw(DType dtype, uint64_t count, uint64_t seed) {
  Bytes bytes(count * size_of(dtype));
  for (uint64_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(mix_bits((seed * 1'000'003 + i) * kGolden));
  }
  const auto limit = [&]<typename Bits>(Bits exponent) {
    const uint64_t stride = is_pair(dtype) ? 2 : 1;
    for (uint64_t i = 0; i < count; ++i) {
      Bits value;
      std::memcpy(&value, &bytes[i * stride * sizeof(Bits)], sizeof(Bits));
      if ((value & exponent) == exponent) value ^= exponent & (exponent << 1);
      std::memcpy(&bytes[i * stride * sizeof(Bits)], &value, sizeof(Bits));
    }
  };
  if (dtype == DType::f32 || dtype == DType::f32_i32) limit(uint32_t{0x7f800000});
  if (dtype == DType::f64 || dtype == DType::f64_i64) limit(uint64_t{0x7ff0000000000000});
  return bytes;
}

struct Buffers {
  Bytes input;
  Bytes output;
};

Buffers buffers_of(const Call& call, int rank, int ranks, uint64_t seed) {
  const bool scatters = call.algorithm->collective == Collective::reduce_scatter;
  const uint64_t count = scatters ? kCount * static_cast<uint64_t>(ranks) : kCount;
  return {draw(call.dtype, count, seed * 64 + static_cast<uint64_t>(rank)),
          Bytes(kCount * size_of(call.dtype))};
}

Request request_of(const Call& call, Buffers& buffers) {
  const uint64_t size = size_of(call.dtype);
  const ConstBuffer in{buffers.input.data(), buffers.input.size() / size, call.dtype};
  const Buffer out{buffers.output.data(), buffers.output.size() / size, call.dtype};
  switch (call.algorithm->collective) {
    case Collective::reduce_scatter:
      return Request::reduce_scatter(in, out, call.op);
    case Collective::reduce:
      return Request::reduce(in, out, call.op, 0);
    case Collective::scan:
      return Request::scan(in, out, call.op);
    case Collective::exscan:
      return Request::exscan(in, out, call.op);
    default:
      return Request::all_reduce(in, out, call.op);
  }
}

// Returns calls that cover each algorithm with some types, and each type with each operator.
std::vector<Call> calls_for(int ranks) {
  std::vector<Call> calls;
  uint64_t turn = static_cast<uint64_t>(ranks);
  for (const Collective collective : kCollectivesWithAlgorithms) {
    if (!reduces(collective)) continue;
    for (const Algorithm* algorithm : algorithms_for(collective)) {
      if (!algorithm->supports({.ranks = ranks}).empty()) continue;
      constexpr DType kTypes[] = {DType::f16, DType::f32, DType::bf16, DType::f8e4m3};
      calls.push_back({algorithm, kTypes[++turn % 4], ReduceOp::sum});
      calls.push_back({algorithm, kTypes[(turn + 1) % 4], ReduceOp::avg});
    }
  }
  const Algorithm& ring = require_algorithm(Collective::all_reduce, "ring");
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllReduceOps) {
      if (op == ReduceOp::user || !supports(op, dtype)) continue;
      const double factor = is_float(dtype) ? 0.7 : 3;
      calls.push_back(
          {&ring, dtype, op == ReduceOp::premul_sum ? Reduction::premul_sum(factor) : op});
    }
  }
  return calls;
}

class Bits : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(All, Bits, ::testing::Values(2, 3, 4, 5, 7, 8),
                         [](const auto& info) { return std::to_string(info.param); });

TEST_P(Bits, MatchTheProcessor) {
  const int ranks = GetParam();
  const auto p = static_cast<size_t>(ranks);
  const std::vector<Call> calls = calls_for(ranks);
  std::vector<std::vector<Bytes>> expected(calls.size(), std::vector<Bytes>(p));
  testing::run_ranks(ranks, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    for (size_t i = 0; i < calls.size(); ++i) {
      Buffers buffers = buffers_of(calls[i], comm.rank(), ranks, i);
      comm.run(request_of(calls[i], buffers), {.algorithm = calls[i].algorithm->name});
      expected[i][static_cast<size_t>(comm.rank())] = std::move(buffers.output);
    }
  });

  EmulatedGpus gpus(ranks, MailboxShape{.blocks = 2, .simple_bytes = 4096, .lines_data = 2048});
  for (size_t i = 0; i < calls.size(); ++i) {
    const Call& call = calls[i];
    SCOPED_TRACE(call.algorithm->name + " of " + std::string(name(call.algorithm->collective)) +
                 ", " + std::string(name(call.dtype)) + " " + std::string(name(call.op.op)));
    std::vector<Buffers> buffers(p);
    std::vector<Request> requests;
    for (size_t rank = 0; rank < p; ++rank) {
      buffers[rank] = buffers_of(call, static_cast<int>(rank), ranks, i);
      requests.push_back(request_of(call, buffers[rank]));
    }
    const GpuSetting setting{.protocol = i % 2 == 0 ? Protocol::lines : Protocol::simple,
                             .blocks = static_cast<uint32_t>(1 + i % 3 % 2),
                             .threads = 5,
                             .seed = i + 1};
    ASSERT_TRUE(gpus.run(*call.algorithm, requests, setting));
    for (size_t rank = 0; rank < p; ++rank) ASSERT_EQ(buffers[rank].output, expected[i][rank]);
  }
}

}  // namespace
}  // namespace tutti
