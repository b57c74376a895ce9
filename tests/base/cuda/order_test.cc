// Tests the order of work in streams and with events. Kernels and copies start at random times, so
// that a missing dependency is noticed.
#include <gtest/gtest.h>

#include "base/cuda/api.h"
#include "tests/base/cuda/harness.h"

namespace tutti::cuda {
namespace {

constexpr size_t kBytes = 256 * sizeof(uint64_t);
using Words = std::vector<uint64_t>;

TEST(Order, WithinAStream) {
  const Gpu gpu;
  const Stream stream(gpu.context);
  const DeviceMemory a(gpu.context, kBytes);
  const DeviceMemory b(gpu.context, kBytes);
  gpu.fill(stream.handle(), a, 0);
  for (uint64_t i = 0; i < 20; ++i) {
    gpu.fill(stream.handle(), b, i);
    gpu.add(stream.handle(), a, b);
  }
  EXPECT_EQ(gpu.read(stream.handle(), a), Words(256, 190));
}

TEST(Order, BetweenStreamsByEvents) {
  const Gpu gpu;
  const Stream first(gpu.context);
  const Stream second(gpu.context);
  const DeviceMemory a(gpu.context, kBytes);
  const DeviceMemory b(gpu.context, kBytes);
  Event filled(gpu.context);
  Event added(gpu.context);
  filled.hold(second.handle());  // has no effect before the event is recorded
  gpu.fill(first.handle(), a, 0);
  for (uint64_t i = 1; i <= 10; ++i) {
    gpu.fill(first.handle(), b, i);
    filled.record(first.handle());
    filled.hold(second.handle());
    gpu.add(second.handle(), a, b);
    added.record(second.handle());
    added.hold(first.handle());
  }
  EXPECT_EQ(gpu.read(second.handle(), a), Words(256, 55));
}

TEST(Order, TheLegacyStreamWaitsForBlockingStreams) {
  const Gpu gpu;
  CUstream blocking = nullptr;
  api().stream_create(&blocking, CU_STREAM_DEFAULT);
  const DeviceMemory a(gpu.context, kBytes);
  const DeviceMemory b(gpu.context, kBytes);
  for (uint64_t i = 1; i <= 5; ++i) {
    gpu.fill(blocking, b, i);
    gpu.fill(nullptr, a, 100);
    gpu.add(legacy_stream(), a, b);
    gpu.fill(per_thread_stream(), b, 0);
    EXPECT_EQ(gpu.read(per_thread_stream(), a), Words(256, 100 + i));
  }
  api().stream_destroy(blocking);
  EXPECT_TRUE(says(error_of([&] { synchronize(blocking); }), "CUDA_ERROR_INVALID_HANDLE"));
}

TEST(Order, KernelsOfSeveralStreamsRunConcurrently) {
  const Gpu gpu;
  const Stream streams[] = {Stream(gpu.context), Stream(gpu.context), Stream(gpu.context)};
  std::vector<PinnedMemory> flags;
  for (const Stream& stream : streams) {
    flags.emplace_back(gpu.context, 2 * sizeof(uint64_t));
    gpu.spin(stream.handle(), flags.back());
  }
  for (const PinnedMemory& flag : flags) await(flag);
  EXPECT_FALSE(is_done(streams[0].handle()));
  for (const PinnedMemory& flag : flags) release(flag);
  synchronize(gpu.context);
  for (const Stream& stream : streams) EXPECT_TRUE(is_done(stream.handle()));
}

TEST(Order, EventsMeasureTimes) {
  const Gpu gpu;
  const Stream stream(gpu.context);
  const PinnedMemory flags(gpu.context, 2 * sizeof(uint64_t));
  Event before(gpu.context, Event::Timing::on);
  Event after(gpu.context, Event::Timing::on);
  Event silent(gpu.context);
  EXPECT_TRUE(after.is_done());
  before.record(stream.handle());
  gpu.spin(stream.handle(), flags);
  after.record(stream.handle());
  before.synchronize();
  EXPECT_FALSE(after.is_done());
  EXPECT_TRUE(says(error_of([&] { after.milliseconds_since(before); }), "CUDA_ERROR_NOT_READY"));
  release(flags);
  after.synchronize();
  EXPECT_GT(after.milliseconds_since(before), 0);
  silent.record(stream.handle());
  silent.synchronize();
  EXPECT_TRUE(
      says(error_of([&] { silent.milliseconds_since(before); }), "CUDA_ERROR_INVALID_HANDLE"));
}

TEST(Order, AStreamWaitsForAWord) {
  const Gpu gpu;
  const Stream stream(gpu.context);
  const DeviceMemory memory(gpu.context, sizeof(uint64_t));
  const PinnedMemory pinned(gpu.context, 2 * sizeof(uint64_t));
  auto* const words = reinterpret_cast<uint32_t*>(pinned.data());
  words[0] = 0;
  wait_for_word(stream.handle(), reinterpret_cast<uint32_t*>(pinned.device_data()), 3);
  gpu.fill(stream.handle(), memory, 8);
  std::atomic_ref(words[0]).store(2);
  EXPECT_FALSE(is_done(stream.handle()));
  std::atomic_ref(words[0]).store(3);
  EXPECT_EQ(gpu.read(stream.handle(), memory), Words(1, 8));
}

TEST(Order, CallsOfAllStreamsRunInOrder) {
  const Gpu gpu;
  const Stream first(gpu.context);
  const Stream second(gpu.context);
  const DeviceMemory a(gpu.context, kBytes);
  const DeviceMemory b(gpu.context, kBytes);
  CallOrder order(gpu.context);
  gpu.fill(first.handle(), a, 0);
  for (uint64_t i = 1; i <= 10; ++i) {
    for (CUstream const stream : {first.handle(), second.handle(), per_thread_stream()}) {
      order.begin(stream);
      gpu.fill(stream, b, i);
      gpu.add(stream, a, b);
      order.end(stream);
    }
  }
  order.drain();
  EXPECT_EQ(gpu.read(second.handle(), a), Words(256, 165));
}

TEST(Order, HostFunctionsRunInStreamOrder) {
  const Gpu gpu;
  const Stream stream(gpu.context);
  const DeviceMemory memory(gpu.context, sizeof(uint64_t));
  const PinnedMemory host(gpu.context, 3 * sizeof(uint64_t));
  auto* const words = reinterpret_cast<uint64_t*>(host.data());
  gpu.fill(stream.handle(), memory, 5);
  copy_async(words, memory.data(), sizeof(uint64_t), stream.handle());
  call_on_host(
      stream.handle(),
      [](void* data) {
        auto* const words = static_cast<uint64_t*>(data);
        words[1] = words[0] * 2;
      },
      words);
  copy_async(memory.data(), words + 1, sizeof(uint64_t), stream.handle());
  EXPECT_EQ(gpu.read(stream.handle(), memory), Words(1, 10));
}

TEST(Order, ParametersAreReadAtTheCall) {
  const Gpu gpu;
  const Stream stream(gpu.context);
  const DeviceMemory memory(gpu.context, kBytes);
  testing::FillParameter parameter{Gpu::words(memory), 256, 3};
  launch(gpu.module.function("fill"), {}, stream.handle(), parameter);
  parameter.value = 4;
  EXPECT_EQ(gpu.read(stream.handle(), memory), Words(256, 3));
}

}  // namespace
}  // namespace tutti::cuda
