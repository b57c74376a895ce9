// Tests that the thread sanitizer reports a store that should be a release and is not.
// random_calls_test.cc shows that it reports nothing for the real kernels.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>

#include "tests/collectives/gpu/many_calls.h"
#include "tests/support/host_gpu/kernels.h"

namespace tutti {
namespace {

// Relaxed stores are in order on x86, but not on other architectures.
struct Unfenced : host_gpu::Thread {
  void store_after_fence(uint64_t* to, uint64_t value) {
    std::atomic_ref(*to).store(value, std::memory_order_relaxed);
  }
};

constexpr host_gpu::NamedKernel kUnfenced{
    .name = "unfenced",
    .run =
        [](host_gpu::Thread& thread, void** parameters) {
          Unfenced unfenced{thread};
          gpu::run_call<kernels::Integer<int32_t, uint32_t>>(
              unfenced, *static_cast<const gpu::Launch*>(parameters[0]));
        },
    .parameter_bytes = sizeof(gpu::Launch)};

TEST(Fences, AMissingFenceIsReported) {
#if defined(__SANITIZE_THREAD__)
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        testing::is_wrong_by(kUnfenced, {.protocol = gpu::Protocol::simple},
                             std::chrono::minutes(1), 15);
        std::exit(0);  // NOLINT: ranks have ended
      },
      ::testing::ExitedWithCode(66), "data race");
#else
  GTEST_SKIP() << "this is not a build with the thread sanitizer";
#endif
}

}  // namespace
}  // namespace tutti
