// Tests the loops of each instruction set of this processor against the baseline loops. Sums use
// the same lanes, so that results differ only because compilers may contract operations to fused
// multiply-adds.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/reduce.h"
#include "base/text.h"
#include "tests/training/support/host_tensor.h"
#include "training/kernels/cpu/loops.h"
#include "training/kernels/elementwise.h"

namespace tutti::training::testing {
namespace {

using kernels::Loops;

constexpr int64_t kRows = 5;
constexpr std::array<int64_t, 4> kWidths = {1, 7, 33, 130};

// A case calls one loop of a table with kRows x cols inputs, and returns everything that the loop
// writes.
struct Case {
  DType type;
  int64_t cols;

  HostTensor in(uint64_t stream, double limit = 3) const {
    return random_tensor(type, kRows, cols, stream, limit);
  }
  HostTensor values(uint64_t stream, double limit = 3) const {
    return random_tensor(value_type(type), kRows, cols, stream, limit);
  }
  HostTensor out() const { return HostTensor(type, kRows, cols); }
  int64_t size() const { return kRows * cols; }
};

std::vector<double> joined(std::initializer_list<ConstTensor> tensors) {
  std::vector<double> all;
  for (const ConstTensor& tensor : tensors) {
    const std::vector<double> values = doubles(tensor);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

using Run = std::function<std::vector<double>(const Loops&, const Case&)>;

Run map_of(void (*Loops::*loop)(const void*, void*, int64_t)) {
  return [loop](const Loops& loops, const Case& c) {
    const HostTensor x = c.in(1), y = c.out();
    (loops.*loop)(x.view().data, y.view().data, c.size());
    return doubles(y);
  };
}

Run map_of(void (*Loops::*loop)(const void*, const void*, void*, int64_t)) {
  return [loop](const Loops& loops, const Case& c) {
    const HostTensor x = c.in(1), y = c.in(2), z = c.out();
    (loops.*loop)(x.view().data, y.view().data, z.view().data, c.size());
    return doubles(z);
  };
}

std::map<std::string, Run> elementwise_loops() {
  return {
      {"gelu", map_of(&Loops::gelu)},
      {"gelu_backward", map_of(&Loops::gelu_backward)},
      {"swiglu", map_of(&Loops::swiglu)},
      {"relu", map_of(&Loops::relu)},
      {"relu_backward", map_of(&Loops::relu_backward)},
      {"add", map_of(&Loops::add)},
      {"swiglu_backward",
       [](const Loops& loops, const Case& c) {
         const HostTensor x = c.in(1), y = c.in(2), dz = c.in(3), dx = c.out(), dy = c.out();
         loops.swiglu_backward(x.view().data, y.view().data, dz.view().data, dx.view().data,
                               dy.view().data, c.size());
         return joined({dx, dy});
       }},
      {"scale",
       [](const Loops& loops, const Case& c) {
         const HostTensor x = c.in(1), y = c.out();
         loops.scale(x.view().data, y.view().data, c.size(), 0.3);
         return doubles(y);
       }},
      {"conversions",
       [](const Loops& loops, const Case& c) {
         const HostTensor x = c.in(1), y = c.in(2), wide = c.values(3), narrow = c.out();
         loops.to_values(x.view().data, wide.view().data, c.size());
         loops.from_values(wide.view().data, narrow.view().data, c.size());
         loops.add_values(wide.view().data, y.view().data, c.size());
         EXPECT_TRUE(same_bits(x, narrow));
         return joined({wide, y});
       }},
      {"dropout",
       [](const Loops& loops, const Case& c) {
         const HostTensor x = c.in(1), y = c.out();
         loops.dropout(x.view().data, y.view().data, c.size(), 1u << 30, 4.0 / 3, {1, 2, 3});
         return doubles(y);
       }},
      {"dropout_add",
       [](const Loops& loops, const Case& c) {
         const HostTensor x = c.in(1), residual = c.in(2), y = c.out();
         loops.dropout_add(x.view().data, residual.view().data, y.view().data, c.size(), 1u << 30,
                           4.0 / 3, {1, 2, 3});
         return doubles(y);
       }},
      {"add_column_sums",
       [](const Loops& loops, const Case& c) {
         const HostTensor x = c.in(1), sums = c.values(2);
         loops.add_column_sums(x.view().data, sums.view().data, kRows, c.cols, c.cols);
         return doubles(sums);
       }},
  };
}

std::map<std::string, Run> row_loops() {
  return {
      {"layer_norm",
       [](const Loops& loops, const Case& c) {
         const HostTensor x = c.in(1), gain = c.in(2), bias = c.in(3), y = c.out();
         const HostTensor dy = c.in(4), dx = c.out(), dgain = c.values(5), dbias = c.values(6);
         HostTensor statistics(value_type(c.type), kRows, 2);
         // Epsilon is large, because at width 1 the usual epsilon amplifies rounding.
         loops.layer_norm(x.view().data, gain.view().data, bias.view().data, y.view().data,
                          statistics.view().data, kRows, c.cols, 0.1);
         loops.layer_norm_backward(x.view().data, gain.view().data, dy.view().data,
                                   statistics.view().data, dx.view().data, kRows, c.cols);
         loops.layer_norm_gradients(x.view().data, dy.view().data, statistics.view().data,
                                    dgain.view().data, dbias.view().data, kRows, c.cols);
         return joined({y, statistics, dx, dgain, dbias});
       }},
      {"rms_norm",
       [](const Loops& loops, const Case& c) {
         const HostTensor x = c.in(1), gain = c.in(2), y = c.out();
         const HostTensor dy = c.in(4), dx = c.out(), dgain = c.values(5);
         HostTensor statistics(value_type(c.type), kRows, 1);
         loops.rms_norm(x.view().data, gain.view().data, y.view().data, statistics.view().data,
                        kRows, c.cols, 0.1);
         loops.rms_norm_backward(x.view().data, gain.view().data, dy.view().data,
                                 statistics.view().data, dx.view().data, kRows, c.cols);
         loops.rms_norm_gradients(x.view().data, dy.view().data, statistics.view().data,
                                  dgain.view().data, kRows, c.cols);
         return joined({y, statistics, dx, dgain});
       }},
      {"rope",
       [](const Loops& loops, const Case& c) {
         const int64_t head_size = c.cols / 2 * 2;
         const HostTensor x = c.in(1), y = c.in(2),
                          table = random_tensor(value_type(c.type), 2 * 3, head_size / 2, 3);
         loops.rope(x.view().data, y.view().data, {kRows, c.cols, 1, head_size}, 3,
                    table.view().data, -1);
         return doubles(y);
       }},
      {"cross_entropy",
       [](const Loops& loops, const Case& c) {
         const HostTensor x = c.in(1), dx = c.out();
         const HostTensor sums(value_type(c.type), kRows, 3);
         const HostTensor statistics = random_tensor(value_type(c.type), kRows, 2, 7);
         const std::vector<int32_t> targets(kRows, static_cast<int32_t>(5 + c.cols / 2));
         loops.cross_entropy_sums(x.view().data, targets.data(), 5, sums.view().data, kRows, c.cols,
                                  c.cols);
         loops.cross_entropy_backward(x.view().data, targets.data(), 5, statistics.view().data,
                                      dx.view().data, kRows, c.cols, 0.3);
         return joined({sums, dx});
       }},
  };
}

std::map<std::string, Run> attention_loops() {
  return {
      {"attention_softmax",
       [](const Loops& loops, const Case& c) {
         const HostTensor scores = c.values(1), p = c.in(2), output = c.values(3), y = c.out();
         const HostTensor maxima = random_tensor(value_type(c.type), 1, kRows, 4);
         const HostTensor sums = random_tensor(value_type(c.type), 1, kRows, 5), lse = c.values(6);
         for (int64_t row = 0; row < kRows; ++row) set(sums, 0, row, 2);
         loops.attention_softmax(scores.view().data, p.view().data, kRows, c.cols, {c.cols / 2},
                                 0.3, maxima.view().data, sums.view().data, output.view().data,
                                 c.cols);
         loops.attention_finish(output.view().data, maxima.view().data, sums.view().data,
                                y.view().data, c.cols, lse.view().data, kRows, c.cols);
         return joined({p, output, maxima, sums, y, lse});
       }},
      {"attention_backward",
       [](const Loops& loops, const Case& c) {
         const HostTensor scores = c.values(1), p = c.in(2), dp = c.values(3), ds = c.out();
         const HostTensor lse = random_tensor(value_type(c.type), 1, kRows, 4), y = c.in(5);
         const HostTensor delta = random_tensor(value_type(c.type), 1, kRows, 6), dy = c.in(7);
         loops.attention_recompute(scores.view().data, lse.view().data, p.view().data, kRows,
                                   c.cols, {c.cols - 2}, 0.3);
         loops.attention_delta(y.view().data, dy.view().data, c.cols, delta.view().data, kRows,
                               c.cols);
         loops.attention_score_gradient(p.view().data, dp.view().data, delta.view().data,
                                        ds.view().data, kRows, c.cols, 0.3);
         return joined({p, delta, ds});
       }},
  };
}

// Tolerance relative to the largest value. Fused multiply-adds change the last bits, and the
// rounding to the type may go in the other direction.
double tolerance_of(DType type) {
  switch (type) {
    case DType::f64:
      return 1e-14;
    case DType::f32:
      return 4e-6;
    case DType::f16:
      return 0x1p-9;
    default:
      return 0x1p-6;
  }
}

const Loops& loops_of(InstructionSet set, DType type) {
  const auto index = static_cast<size_t>(type) - static_cast<size_t>(DType::f16);
#if defined(__x86_64__)
  if (set == InstructionSet::avx2) return kernels::avx2::kLoops[index];
  if (set == InstructionSet::avx512) return kernels::avx512::kLoops[index];
#endif
  return kernels::baseline::kLoops[index];
}

class InstructionSetsTest : public ::testing::TestWithParam<InstructionSet> {};

void compare(const std::map<std::string, Run>& runs, InstructionSet set) {
  for (const auto& [loop, run] : runs) {
    for (const DType type : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
      for (const int64_t cols : kWidths) {
        const Case problem{type, cols};
        const std::vector<double> plain = run(loops_of(InstructionSet::baseline, type), problem);
        const std::vector<double> found = run(loops_of(set, type), problem);
        EXPECT_LE(relative_distance(found, plain), tolerance_of(type))
            << loop << " in " << name(type) << " of width " << cols;
      }
    }
  }
}

TEST_P(InstructionSetsTest, AgreesWithBaseline) {
  if (!is_available(GetParam())) GTEST_SKIP() << "this processor has no " << name(GetParam());
  compare(elementwise_loops(), GetParam());
  compare(row_loops(), GetParam());
  compare(attention_loops(), GetParam());
}

TEST_P(InstructionSetsTest, FindsWhatIsNotFinite) {
  if (!is_available(GetParam())) GTEST_SKIP() << "this processor has no " << name(GetParam());
  for (const DType type : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    const HostTensor x = random_tensor(type, 1, 77, 1);
    EXPECT_TRUE(loops_of(GetParam(), type).all_finite(x.view().data, 77));
    set(x, 0, 40, -INFINITY);
    EXPECT_FALSE(loops_of(GetParam(), type).all_finite(x.view().data, 77));
  }
}

INSTANTIATE_TEST_SUITE_P(All, InstructionSetsTest, ::testing::ValuesIn(kAllInstructionSets),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace tutti::training::testing
