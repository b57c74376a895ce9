// Measures what fused operators save beside a product (Narayanan et al.: Efficient large-scale
// language model training on GPU clusters, 2021, section 4.2):
//
//   fusion [--rows 2048] [--width 256] [--rounds 15]
//
// Prints a line for each chain of operators: the microseconds of the product alone, of the product
// and one kernel per operator, and of the fused form; the bytes that the chain's kernels read and
// write; and the gain of product and chain. Chains run in turn on one thread in f32; times and
// gains are medians over the rounds.
//
//   bias + GeLU           x W^T, + b, GeLU                  the product adds the bias
//   bias + dropout + add  x W^T, + b, dropout, + residual   the product adds the bias; dropout_add
//   SwiGLU                gate, up, sigmoid, two products   swiglu
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <vector>

#include "base/median.h"
#include "training/core/arena.h"
#include "training/core/random.h"
#include "training/kernels/elementwise.h"
#include "training/kernels/gemm.h"

namespace tutti::training {
namespace {

struct Options {
  int64_t rows = 2048;
  int64_t width = 256;
  int64_t rounds = 15;
};

using Work = std::function<void()>;

struct Chain {
  const char* name;
  double separate_bytes, bytes_fused;  // read and written by the kernels after the product
  Work product, apart, fused;
};

void add_bias(Tensor y, ConstTensor bias) {
  const float* const b = reinterpret_cast<const float*>(bias.data);
  for (int64_t row = 0; row < y.rows; ++row) {
    float* const values = reinterpret_cast<float*>(y.at(row, 0));
#pragma GCC ivdep
    for (int64_t i = 0; i < y.cols; ++i) values[i] += b[i];
  }
}

void multiply(ConstTensor a, ConstTensor b, Tensor y) {
  const float* const left = reinterpret_cast<const float*>(a.data);
  const float* const right = reinterpret_cast<const float*>(b.data);
  float* const out = reinterpret_cast<float*>(y.data);
#pragma GCC ivdep
  for (int64_t i = 0; i < y.size(); ++i) out[i] = left[i] * right[i];
}

Tensor filled(Arena& arena, int64_t rows, int64_t cols, uint64_t stream) {
  const Tensor tensor = arena.take(DType::f32, rows, cols);
  uint64_t index = 0;
  for (float& value : tensor.values<float>()) {
    value = static_cast<float>(random_bits(1, stream, index++) >> 40) * 0x1p-24F - 0.5F;
  }
  return tensor;
}

double microseconds(const Work& work) {
  const auto before = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - before)
      .count();
}

void measure(const Chain& chain, int64_t rounds) {
  std::vector<double> product, apart, fused, ratios;
  for (int64_t round = -2; round < rounds; ++round) {
    const double times[] = {microseconds(chain.product), microseconds(chain.apart),
                            microseconds(chain.fused)};
    if (round < 0) continue;  // the first rounds touch memory and generate code
    product.push_back(times[0]);
    apart.push_back(times[1]);
    fused.push_back(times[2]);
    ratios.push_back(times[1] / times[2]);
  }
  std::printf("%-22s %10.0f %10.0f %10.0f %10.1f %10.1f %8.1f\n", chain.name, median(product),
              median(apart), median(fused), chain.separate_bytes / 1e6, chain.bytes_fused / 1e6,
              100 * (median(ratios) - 1));
}

void run(const Options& options) {
  Arena arena;
  const int64_t rows = options.rows, width = options.width, hidden = 4 * width;
  const Tensor x = filled(arena, rows, width, 1), wide = filled(arena, rows, hidden, 2);
  const Tensor up = filled(arena, hidden, width, 3), down = filled(arena, width, hidden, 4);
  const Tensor bias_up = filled(arena, 1, hidden, 5), bias_down = filled(arena, 1, width, 6);
  const Tensor residual = filled(arena, rows, width, 7), gate = filled(arena, rows, hidden, 8);
  const Tensor before = arena.take(DType::f32, rows, hidden);
  const Tensor active = arena.take(DType::f32, rows, hidden);
  const Tensor branch = arena.take(DType::f32, rows, width);
  constexpr double kP = 0.1;
  constexpr DropoutAt kAt{.seed = 1, .stream = 2, .index = 0};
  const auto ascend = [&](ConstTensor bias) {
    gemm(x, Transpose::no, up, Transpose::yes, before, GemmMode::overwrite, bias);
  };
  const auto descend = [&](ConstTensor bias) {
    gemm(wide, Transpose::no, down, Transpose::yes, branch, GemmMode::overwrite, bias);
  };
  const double large = static_cast<double>(before.bytes());
  const double small = static_cast<double>(branch.bytes());
  const Chain chains[] = {
      {"bias + GeLU", 4 * large, 2 * large, [&] { ascend({}); },
       [&] {
         ascend({});
         add_bias(before, bias_up);
         gelu(before, active);
       },
       [&] {
         ascend(bias_up);
         gelu(before, active);
       }},
      {"bias + dropout + add", 7 * small, 3 * small, [&] { descend({}); },
       [&] {
         descend({});
         add_bias(branch, bias_down);
         dropout(branch, branch, kP, kAt);
         add(branch, residual, branch);
       },
       [&] {
         descend(bias_down);
         dropout_add(branch, residual, branch, kP, kAt);
       }},
      {"SwiGLU", 6 * large, 3 * large, [&] { ascend({}); },
       [&] {
         ascend({});
         swiglu(gate, gate, active);  // takes as long as silu(gate), for which there is no kernel
         multiply(active, before, active);
       },
       [&] {
         ascend({});
         swiglu(gate, before, active);
       }},
  };
  std::printf("%-22s %10s %10s %10s %10s %10s %8s\n", "chain", "product us", "apart us", "fused us",
              "apart MB", "fused MB", "gain %");
  for (const Chain& chain : chains) measure(chain, options.rounds);
}

}  // namespace
}  // namespace tutti::training

int main(int argc, char** argv) {
  tutti::training::Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    int64_t* const value = name == "--rows"     ? &options.rows
                           : name == "--width"  ? &options.width
                           : name == "--rounds" ? &options.rounds
                                                : nullptr;
    if (value == nullptr || (*value = std::atoll(argv[i + 1])) <= 0) {
      std::fprintf(stderr, "usage: fusion [--rows N] [--width N] [--rounds N]\n");
      return 2;
    }
  }
  if (argc % 2 == 0) {
    std::fprintf(stderr, "usage: fusion [--rows N] [--width N] [--rounds N]\n");
    return 2;
  }
  tutti::training::run(options);
}
