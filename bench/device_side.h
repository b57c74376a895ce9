// The buffers of a measurement in GPU memory, and the stream on which its calls are enqueued.
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

// Function that allocates memory of the context's device.
using DeviceAllocator =
    std::function<std::shared_ptr<std::byte>(const cuda::Context& context, size_t bytes)>;
std::shared_ptr<std::byte> plain_device_memory(const cuda::Context& context, size_t bytes);

class DeviceSide {
 public:
  // Uses the GPU of this rank. If a host has fewer GPUs than ranks, its ranks share GPUs
  // round-robin.
  DeviceSide(int rank, size_t input_bytes, size_t output_bytes,
             const DeviceAllocator& allocate = plain_device_memory);

  std::byte* input() const { return input_.get(); }
  std::byte* output() const { return output_.get(); }
  Stream stream() const { return {stream_.handle()}; }

  // Copies the input to the output, as far as the smaller of the two buffers reaches. All copies of
  // this class are synchronous.
  void copy_input();
  void write_input(std::span<const std::byte> bytes);
  void write_output(std::span<const std::byte> bytes);
  void read_output(std::span<std::byte> bytes);
  // Captures the work that `calls` enqueues on the stream as a graph, which replay() launches.
  void capture(const std::function<void()>& calls);
  void replay() const { graph_->launch(stream_.handle()); }

  // begin_timing() marks the start on the stream. end_timing() waits for the stream's work and
  // returns the microseconds since the start, measured by the GPU.
  void begin_timing() { begun_.record(stream_.handle()); }
  double end_timing();

 private:
  void copy(void* to, const void* from, size_t bytes);

  const cuda::Context context_;
  const cuda::CurrentContext current_;
  const cuda::Stream stream_;
  const size_t shared_bytes_;  // size of the smaller buffer
  const std::shared_ptr<std::byte> input_;
  const std::shared_ptr<std::byte> output_;
  cuda::Event begun_;
  cuda::Event ended_;
  std::optional<cuda::Graph> graph_;
};

}  // namespace tutti::bench
