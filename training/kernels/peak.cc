#include "training/kernels/peak.h"

#include <algorithm>
#include <chrono>

#include "training/arena.h"
#include "training/kernels/elementwise.h"
#include "training/kernels/gemm.h"

namespace tutti::training {

double measured_peak(DType type) {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kSize = 512;
  constexpr double kOperations = 2.0 * kSize * kSize * kSize;
  Arena arena(size_t{1} << 26);
  const Tensor a = arena.take(type, kSize, kSize);
  const Tensor b = arena.take(type, kSize, kSize);
  const Tensor c = arena.take(type, kSize, kSize);
  zero(a);
  zero(b);
  double best = 0;
  const Clock::time_point start = Clock::now();
  do {
    const Clock::time_point before = Clock::now();
    gemm(a, Transpose::no, b, Transpose::yes, c);
    best =
        std::max(best, kOperations / std::chrono::duration<double>(Clock::now() - before).count());
  } while (Clock::now() - start < std::chrono::milliseconds(100));
  return best;
}

}  // namespace tutti::training
