#include "tests/collectives/gpu/many_calls.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "tests/collectives/gpu/emulated_gpus.h"

namespace tutti::testing {

namespace {

constexpr int kRanks = 4;
constexpr uint64_t kCount = 4003;

}  // namespace

bool is_wrong_by(const host_gpu::NamedKernel& kernel, const GpuSetting& way,
                 std::chrono::milliseconds patience, uint64_t seeds) {
  // With lent messages, some ranks of one_shot end while others still read their inputs.
  const char* const name = way.lends ? "one_shot" : "ring";
  const Algorithm& algorithm = require_algorithm(Collective::all_reduce, name);
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    EmulatedGpus gpus(
        kRanks, gpu::MailboxShape{.slots = 2, .blocks = 2, .simple_bytes = 512, .lines_data = 512});
    gpus.use(&kernel);
    for (int call = 0; call < 2; ++call) {
      std::vector<std::vector<int32_t>> data(kRanks, std::vector<int32_t>(kCount));
      std::vector<std::vector<int32_t>> lent(kRanks, std::vector<int32_t>(kCount));
      std::vector<Request> requests;
      for (size_t rank = 0; rank < kRanks; ++rank) {
        std::vector<int32_t>& input = way.lends ? lent[rank] : data[rank];
        std::iota(input.begin(), input.end(), 1 + static_cast<int>(rank) * 1000 + call * 100'000);
        requests.push_back(Request::all_reduce(const_buffer_of<int32_t>(input),
                                               buffer_of<int32_t>(data[rank]), ReduceOp::sum));
      }
      const GpuSetting setting{.protocol = way.protocol,
                               .blocks = 2,
                               .threads = 8,
                               .lends = way.lends,
                               .overwrites_inputs = way.lends,
                               .seed = seed,
                               .patience = patience};
      if (!gpus.run(algorithm, requests, setting)) return true;
      for (const std::vector<int32_t>& mine : data) {
        for (uint64_t i = 0; i < kCount; ++i) {
          const auto first = static_cast<int64_t>(i) + 1 + call * 100'000;
          if (mine[i] != kRanks * first + 6000) return true;
        }
      }
    }
  }
  return false;
}

}  // namespace tutti::testing
