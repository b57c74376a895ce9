// A measurement's buffers in a GPU's memory, and the stream that its calls are put into.
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
  // On the GPU of a rank of this host: they take turns where there are fewer GPUs.
  DeviceSide(int rank, size_t input_bytes, size_t output_bytes,
             const DeviceAllocator& allocate = plain_device_memory);

  std::byte* input() const { return input_.get(); }
  std::byte* output() const { return output_.get(); }
  Stream stream() const { return {stream_.handle()}; }

  // Copies, which are over when they return.
  void copy_input();  // to the output
  void write_input(std::span<const std::byte> bytes);
  void write_output(std::span<const std::byte> bytes);
  void read_output(std::span<std::byte> bytes);
  // Records what `calls` puts into the stream as a graph, which replay() then puts there.
  void capture(const std::function<void()>& calls);
  void replay() const { graph_->launch(stream_.handle()); }

  // How long the GPU takes from the one to the other, in microseconds. The second waits for it.
  void begin_timing() { begun_.record(stream_.handle()); }
  double end_timing();

 private:
  void copy(void* to, const void* from, size_t bytes);

  const cuda::Context context_;
  const cuda::CurrentContext current_;
  const cuda::Stream stream_;
  const size_t shared_bytes_;  // that both buffers have
  const std::shared_ptr<std::byte> input_;
  const std::shared_ptr<std::byte> output_;
  cuda::Event begun_;
  cuda::Event ended_;
  std::optional<cuda::Graph> graph_;
};

}  // namespace tutti::bench
