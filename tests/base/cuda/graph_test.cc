// Tests capture into graphs, their replay, and calls that are forbidden during capture.
#include <gtest/gtest.h>

#include <functional>

#include "base/cuda/api.h"
#include "tests/base/cuda/harness.h"

namespace tutti::cuda {
namespace {

constexpr size_t kBytes = 16 * sizeof(uint64_t);
using Words = std::vector<uint64_t>;

class GraphTest : public ::testing::Test {
 protected:
  void SetUp() override {
    gpu.fill(stream.handle(), sum, 0);
    gpu.fill(stream.handle(), one, 1);
    synchronize(stream.handle());
  }

  Gpu gpu;
  Stream stream{gpu.context};
  Stream other{gpu.context};
  DeviceMemory sum{gpu.context, kBytes};
  DeviceMemory one{gpu.context, kBytes};
};

TEST_F(GraphTest, ReplaysAThousandTimes) {
  Capture capture(gpu.context, stream.handle());
  EXPECT_TRUE(is_captured(stream.handle()));
  gpu.add(stream.handle(), sum, one);
  const Graph graph = capture.end();
  EXPECT_FALSE(is_captured(stream.handle()));
  EXPECT_EQ(gpu.read(stream.handle(), sum), Words(16, 0));  // the captured work did not run
  for (int i = 0; i < 1000; ++i) graph.launch(stream.handle());
  EXPECT_EQ(gpu.read(stream.handle(), sum), Words(16, 1000));
}

TEST_F(GraphTest, LaunchesInSeveralStreamsFollowEachOther) {
  Capture capture(gpu.context, stream.handle());
  gpu.fill(stream.handle(), one, 1);
  gpu.add(stream.handle(), sum, one);
  gpu.fill(stream.handle(), one, 0);
  const Graph graph = capture.end();
  for (int i = 0; i < 50; ++i) {
    graph.launch(stream.handle());
    graph.launch(other.handle());
  }
  synchronize(gpu.context);
  EXPECT_EQ(gpu.read(stream.handle(), sum), Words(16, 100));
}

TEST_F(GraphTest, CapturesOtherStreamsThroughEvents) {
  Event fork(gpu.context);
  Event join(gpu.context);
  Capture capture(gpu.context, stream.handle());
  gpu.fill(stream.handle(), one, 2);
  fork.record(stream.handle());
  fork.hold(other.handle());
  gpu.add(other.handle(), sum, one);
  join.record(other.handle());
  join.hold(stream.handle());
  gpu.fill(stream.handle(), one, 9);
  const Graph graph = capture.end();
  EXPECT_FALSE(is_captured(other.handle()));
  for (int i = 0; i < 20; ++i) graph.launch(stream.handle());
  EXPECT_EQ(gpu.read(stream.handle(), sum), Words(16, 40));
  EXPECT_EQ(gpu.read(stream.handle(), one), Words(16, 9));
}

TEST_F(GraphTest, RequiresAllStreamsToBeJoinedAtTheEnd) {
  Event fork(gpu.context);
  Capture capture(gpu.context, stream.handle());
  fork.record(stream.handle());
  fork.hold(other.handle());
  gpu.add(other.handle(), sum, one);
  EXPECT_TRUE(says(error_of([&] { capture.end(); }), "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"));
  EXPECT_FALSE(is_captured(stream.handle()));
}

TEST_F(GraphTest, IsDroppedWithoutAnEnd) {
  {
    const Capture capture(gpu.context, stream.handle());
    gpu.add(stream.handle(), sum, one);
  }
  EXPECT_FALSE(is_captured(stream.handle()));
  EXPECT_EQ(gpu.read(stream.handle(), sum), Words(16, 0));
}

TEST_F(GraphTest, WaitsAndAllocationsEndTheCapture) {
  Event event(gpu.context);
  const std::pair<std::function<void()>, const char*> mistakes[] = {
      {[&] { synchronize(stream.handle()); }, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900)"},
      {[&] { is_done(stream.handle()); }, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900)"},
      {[&] { DeviceMemory(gpu.context, 64); }, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900)"},
      {[&] { synchronize(gpu.context); }, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900)"},
      {[&] { event.synchronize(); }, "CUDA_ERROR_CAPTURED_EVENT (907)"},
  };
  for (const auto& [mistake, name] : mistakes) {
    Capture capture(gpu.context, stream.handle());
    event.record(stream.handle());
    EXPECT_TRUE(says(error_of(mistake), name)) << name;
    EXPECT_TRUE(says(error_of([&] { gpu.add(stream.handle(), sum, one); }),
                     "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"));
    EXPECT_TRUE(
        says(error_of([&] { capture.end(); }), "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED (901)"));
  }
}

TEST_F(GraphTest, TheLegacyStreamEndsTheCaptureOfABlockingStream) {
  {
    const Capture capture(gpu.context, stream.handle());
    gpu.add(nullptr, sum, one);  // does not wait for non-blocking streams like ours
    EXPECT_EQ(error_of([&] { Capture(gpu.context, nullptr); }).first, ErrorCode::system);
  }
  const Capture capture(gpu.context, per_thread_stream());
  EXPECT_TRUE(
      says(error_of([&] { gpu.add(nullptr, sum, one); }), "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"));
}

}  // namespace
}  // namespace tutti::cuda
