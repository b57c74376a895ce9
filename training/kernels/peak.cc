#include "training/kernels/peak.h"

#include <time.h>

#include <algorithm>
#include <chrono>

#include "training/core/arena.h"
#include "training/core/thread_pool.h"
#include "training/kernels/elementwise.h"
#include "training/kernels/gemm.h"

namespace tutti::training {
namespace {

double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

double measured_peak(DType type) {
  constexpr int64_t kSize = 512;
  constexpr double kOperations = 2.0 * kSize * kSize * kSize;
  Arena arena(size_t{1} << 26);
  const Tensor a = arena.take(type, kSize, kSize);
  const Tensor b = arena.take(type, kSize, kSize);
  const Tensor c = arena.take(type, kSize, kSize);
  zero(a);
  zero(b);
  double best = 0;
  const double start = processor_seconds();
  double now = start;
  do {
    const double before = now;
    gemm(a, Transpose::no, b, Transpose::yes, c);
    now = processor_seconds();
    best = std::max(best, kOperations / (now - before));
  } while (now - start < 0.1);
  return best;
}

double measured_bandwidth(int threads) {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kElements = int64_t{1} << 24;
  ThreadPool pool(threads);
  const UseThreads use(pool);
  Arena arena(4 * static_cast<size_t>(kElements) * sizeof(float));
  const Tensor from = arena.take(DType::f32, 1, kElements);
  const Tensor to = arena.take(DType::f32, 1, kElements);
  zero(from);
  zero(to);
  double best = 0;
  const Clock::time_point start = Clock::now();
  do {
    const Clock::time_point before = Clock::now();
    copy(from, to);
    const std::chrono::duration<double> taken = Clock::now() - before;
    best = std::max(best, 2 * static_cast<double>(from.bytes()) / taken.count());
  } while (Clock::now() - start < std::chrono::milliseconds(100));
  return best;
}

}  // namespace tutti::training
