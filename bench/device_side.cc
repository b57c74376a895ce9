#include "bench/device_side.h"

#include <algorithm>

#include "base/error.h"

namespace tutti::bench {

namespace {

int device_of(int rank) {
  const int devices = cuda::device_count();
  if (devices > 0) return rank % devices;
  throw Error(ErrorCode::unsupported, "there is no GPU to measure",
              {.cause = "this host has no GPU, or CUDA_VISIBLE_DEVICES hides all",
               .remedy = "check nvidia-smi, or remove --device"});
}

size_t at_least_one(size_t bytes) { return std::max<size_t>(bytes, 1); }

}  // namespace

std::shared_ptr<std::byte> plain_device_memory(const cuda::Context& context, size_t bytes) {
  const auto memory = std::make_shared<const cuda::DeviceMemory>(context, bytes);
  return {memory, memory->data()};
}

DeviceSide::DeviceSide(int rank, size_t input_bytes, size_t output_bytes,
                       const DeviceAllocator& allocate)
    : context_(device_of(rank)),
      current_(context_),
      stream_(context_),
      shared_bytes_(std::min(input_bytes, output_bytes)),
      input_(allocate(context_, at_least_one(input_bytes))),
      output_(allocate(context_, at_least_one(output_bytes))),
      begun_(context_, cuda::Event::Timing::on),
      ended_(context_, cuda::Event::Timing::on) {}

void DeviceSide::copy_input() { copy(output_.get(), input_.get(), shared_bytes_); }

void DeviceSide::write_input(std::span<const std::byte> bytes) {
  copy(input_.get(), bytes.data(), bytes.size());
}

void DeviceSide::write_output(std::span<const std::byte> bytes) {
  copy(output_.get(), bytes.data(), bytes.size());
}

void DeviceSide::read_output(std::span<std::byte> bytes) {
  copy(bytes.data(), output_.get(), bytes.size());
}

void DeviceSide::copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0) cuda::copy_async(to, from, bytes, stream_.handle());
  cuda::synchronize(stream_.handle());
}

void DeviceSide::capture(const std::function<void()>& calls) {
  cuda::Capture capture(context_, stream_.handle());
  calls();
  graph_.emplace(capture.end());
}

double DeviceSide::end_timing() {
  ended_.record(stream_.handle());
  ended_.synchronize();
  return 1000.0 * ended_.milliseconds_since(begun_);
}

}  // namespace tutti::bench
