// Compares the forward products of a mixture of 8 experts, each of 256 tokens with the expert's own
// weight, with a single product of the same total work. Times both in turn, and prints medians.
//
//   expert_products [WIDTH] [HIDDEN] [THREADS]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/median.h"
#include "training/core/random.h"
#include "training/core/thread_pool.h"
#include "training/kernels/gemm.h"

namespace tutti::training {
namespace {

constexpr int64_t kExperts = 8;
constexpr int64_t kTokens = 256;  // tokens per expert
constexpr int kTurns = 41;

struct Matrix {
  Matrix(int64_t rows, int64_t cols, uint64_t seed)
      : values(static_cast<size_t>(rows * cols)),
        tensor(tensor_at(values.data(), DType::f32, rows, cols)) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = scale_symmetric(random_bits(seed, 0, i), 1.0f);
    }
  }
  std::vector<float> values;
  Tensor tensor;
};

template <typename Work>
double seconds(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void run(int64_t width, int64_t hidden, int threads) {
  ThreadPool pool(threads);
  const UseThreads use(pool);
  const Matrix x(kExperts * kTokens, width, 1), y(kExperts * kTokens, hidden, 2);
  std::vector<Matrix> weights;
  for (int64_t expert = 0; expert < kExperts; ++expert) {
    weights.emplace_back(hidden, width, static_cast<uint64_t>(3 + expert));
  }
  const auto one = [&] {
    gemm(x.tensor, Transpose::no, weights.front().tensor, Transpose::yes, y.tensor);
  };
  const auto each = [&] {
    for (int64_t expert = 0; expert < kExperts; ++expert) {
      gemm(x.tensor.row_range(expert * kTokens, kTokens), Transpose::no,
           weights[static_cast<size_t>(expert)].tensor, Transpose::yes,
           y.tensor.row_range(expert * kTokens, kTokens));
    }
  };
  one();
  each();
  std::vector<double> of_one, of_each;
  for (int turn = 0; turn < kTurns; ++turn) {
    of_one.push_back(seconds(one));
    of_each.push_back(seconds(each));
  }
  const double gflop = 2e-9 * static_cast<double>(kExperts * kTokens * width * hidden);
  const double together = median(of_one), apart = median(of_each);
  std::printf("%lld x %lld, %d threads: one product %.1f GFLOP/s, 8 experts %.1f, ratio %.2f\n",
              static_cast<long long>(width), static_cast<long long>(hidden), threads,
              gflop / together, gflop / apart, together / apart);
}

}  // namespace
}  // namespace tutti::training

int main(int argc, char** argv) {
  const auto number = [&](int index, long fallback) {
    return argc > index ? std::strtol(argv[index], nullptr, 10) : fallback;
  };
  tutti::training::run(number(1, 256), number(2, 1024), static_cast<int>(number(3, 1)));
}
