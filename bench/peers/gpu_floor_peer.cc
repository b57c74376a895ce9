// A lower bound for `tutti bench --device cuda`: the time in which the GPUs' copy engines write
// each rank's output from the ranks' inputs. For a reduction, each rank copies the data of the
// previous rank, because a sum reads at least that much. Times are measured by GPU events.
//
//   gpu_floor_peer SOCKET-NAME RANKS
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "base/cuda/device.h"
#include "base/cuda/peer_memory.h"
#include "base/cuda/stream.h"
#include "base/error.h"
#include "bench/device_side.h"
#include "bench/peers/peer_program.h"
#include "bench/peers/rank_threads.h"

namespace tutti::bench {

namespace {

// The ranks' inputs of the current order.
using Inputs = std::vector<cuda::ExportedMemory>;

class FloorRank {
 public:
  FloorRank(RankThreads& ranks, Inputs& inputs, int rank)
      : ranks_(ranks),
        inputs_(inputs),
        rank_(rank),
        context_(rank % cuda::device_count()),
        current_(context_) {}

  std::vector<double> run(const Order& order) {
    const Buffers buffers(order.layout, rank_);
    DeviceSide device(rank_, buffers.input.size() * sizeof(float),
                      buffers.output.size() * sizeof(float));
    inputs_[static_cast<size_t>(rank_)] = cuda::export_memory(device.input());
    ranks_.meet();
    std::vector<cuda::ImportedMemory> reached;
    for (const cuda::ExportedMemory& input : inputs_) reached.emplace_back(context_, input);
    auto* const stream = static_cast<cuda::CUstream>(device.stream().handle);
    std::vector<double> times;
    for (int i = 0; i < order.warm_up + order.timed; ++i) {
      device.write_input(std::as_bytes(std::span(buffers.pristine)));
      ranks_.meet();
      device.begin_timing();
      copy_output(order.layout, reached, device.output(), stream);
      const double time = device.end_timing();
      if (i >= order.warm_up) times.push_back(time);
    }
    ranks_.meet();  // waits before an input that others read is freed
    return times;
  }

 private:
  void copy_output(const Layout& layout, const std::vector<cuda::ImportedMemory>& inputs,
                   std::byte* to, cuda::CUstream stream) const {
    for (const Part& part : output_parts(layout, rank_)) {
      const int from = part.combined == 0 ? part.rank : (rank_ + part.combined - 1) % part.combined;
      const size_t bytes = part.count * sizeof(float);
      const std::byte* const input = inputs[static_cast<size_t>(from)].data();
      cuda::copy_async(to, input + part.first * sizeof(float), bytes, stream);
      to += bytes;
    }
  }

  RankThreads& ranks_;
  Inputs& inputs_;
  const int rank_;
  const cuda::Context context_;
  const cuda::CurrentContext current_;
};

}  // namespace

}  // namespace tutti::bench

int main(int argc, char** argv) {
  using namespace tutti::bench;
  const int count = argc == 3 ? std::atoi(argv[2]) : 0;
  if (count < 1) return 2;
  RankThreads ranks(count);
  Inputs inputs(static_cast<size_t>(count));
  return ranks.serve(argv[1], [&](int rank) -> RankThreads::Runner {
    const auto own = std::make_shared<FloorRank>(ranks, inputs, rank);
    return [own](const Order& order) { return own->run(order); };
  });
}
