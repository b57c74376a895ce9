// Measures the reduction kernels of base/reduce.h. A benchmark's name is operator/type/instruction
// set/bytes of each array. The rate counts the bytes of the result; a kernel reads twice as many.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/reduce.h"
#include "base/text.h"
#include "bench/pattern.h"

namespace tutti::bench {
namespace {

constexpr int kRanks = 2;

// A line with the alignment of a transport's slots.
struct alignas(64) Line {
  std::byte bytes[64];
};

std::vector<Line> input(DType type, ReduceOp op, int rank, size_t bytes) {
  std::vector<Line> lines((bytes + sizeof(Line) - 1) / sizeof(Line));
  fill_pattern(type, op, kRanks, rank, 0, bytes / size_of(type), lines.data());
  return lines;
}

void reduce(benchmark::State& state, DType type, ReduceOp op, InstructionSet set) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const ReduceKernel kernel = reduce_kernel(type, op, set);
  const std::vector<Line> a = input(type, op, 0, bytes);
  const std::vector<Line> b = input(type, op, 1, bytes);
  std::vector<Line> result(a.size());
  for (auto _ : state) {
    kernel(result.data(), a.data(), b.data(), bytes / size_of(type), {});
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
}

void add(DType type, ReduceOp op) {
  for (const InstructionSet set : kAllInstructionSets) {
    if (!is_available(set)) continue;
    const std::string title = cat(name(op), '/', name(type), '/', name(set));
    benchmark::RegisterBenchmark(title.c_str(), reduce, type, op, set)
        ->Arg(1 << 10)
        ->Arg(64 << 10)
        ->Arg(1 << 20)
        ->Arg(64 << 20);
  }
}

void add_all() {
  for (const DType type : kAllDTypes) add(type, is_pair(type) ? ReduceOp::minloc : ReduceOp::sum);
  for (const ReduceOp op : {ReduceOp::prod, ReduceOp::min, ReduceOp::max}) add(DType::f32, op);
}

}  // namespace
}  // namespace tutti::bench

int main(int argc, char** argv) {
  tutti::bench::add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  return benchmark::RunSpecifiedBenchmarks() > 0 ? 0 : 1;
}
