// Buffers of a measurement in GPU memory, and the stream on which its calls are enqueued.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "base/buffer.h"
#include "base/cuda/device.h"
#include "base/cuda/memory.h"
#include "base/cuda/stream.h"

namespace tutti::bench {

// Memory of the context's device.
using DeviceAllocator =
    std::function<std::shared_ptr<std::byte>(const cuda::Context& context, size_t bytes)>;
std::shared_ptr<std::byte> plain_device_memory(const cuda::Context& context, size_t bytes);

class DeviceSide {
 public:
  // Uses the GPU of this rank; ranks share GPUs round-robin where a host has fewer GPUs than ranks.
  DeviceSide(int rank, size_t input_bytes, size_t output_bytes,
             const DeviceAllocator& allocate = plain_device_memory);

  std::byte* input() const { return input_.get(); }
  std::byte* output() const { return output_.get(); }
  Stream stream() const { return {stream_.handle()}; }

  // Synchronous copies.
  void copy_input();  // to the output
  void write_input(std::span<const std::byte> bytes);
  void write_output(std::span<const std::byte> bytes);
  void read_output(std::span<std::byte> bytes);
  // Captures what `calls` enqueues on the stream as a graph, which replay() launches.
  void capture(const std::function<void()>& calls);
  void replay() const { graph_->launch(stream_.handle()); }

  // GPU time between the two calls in microseconds; the second one waits for the GPU.
  void begin_timing() { begun_.record(stream_.handle()); }
  double end_timing();

 private:
  void copy(void* to, const void* from, size_t bytes);

  const cuda::Context context_;
  const cuda::CurrentContext current_;
  const cuda::Stream stream_;
  const size_t shared_bytes_;  // size of each buffer
  const std::shared_ptr<std::byte> input_;
  const std::shared_ptr<std::byte> output_;
  cuda::Event begun_;
  cuda::Event ended_;
  std::optional<cuda::Graph> graph_;
};

}  // namespace tutti::bench
