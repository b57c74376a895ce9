// Tests that an observer of kernel calls is notified of each call once, with operations and bytes.
#include "training/kernels/observer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "training/core/arena.h"
#include "training/core/thread_pool.h"
#include "training/kernels/attention.h"
#include "training/kernels/convolution.h"
#include "training/kernels/elementwise.h"
#include "training/kernels/embedding.h"
#include "training/kernels/gemm.h"

namespace tutti::training {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

class Seen : public KernelObserver {
 public:
  void on_kernel(const KernelCall& call) override { calls.push_back(call); }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const KernelCall& call : calls) names.emplace_back(call.name);
    return names;
  }
  std::vector<KernelCall> calls;
};

class Observer : public ::testing::Test {
 protected:
  Tensor zeros(int64_t rows, int64_t cols) {
    const ObserveKernels nobody(nullptr);
    const Tensor tensor = arena_.take(DType::f32, rows, cols);
    zero(tensor);
    return tensor;
  }

  Arena arena_;
  Seen seen_;
};

TEST_F(Observer, SeesCallsWhileItObserves) {
  const Tensor x = zeros(2, 8);
  zero(x);
  {
    const ObserveKernels observe(&seen_);
    add(x, x, x);
    std::thread([&] { zero(x); }).join();  // a call on another thread is not observed
  }
  zero(x);
  EXPECT_THAT(seen_.names(), ElementsAre("add"));
  EXPECT_EQ(seen_.calls[0].bytes, 3 * 16 * 4);
  EXPECT_EQ(seen_.calls[0].operations, 0);
  EXPECT_GE(seen_.calls[0].time.count(), 0);
}

TEST_F(Observer, CountsOperationsAndBytesOfProducts) {
  const Tensor x = zeros(5, 3), weight = zeros(7, 3), y = zeros(5, 7);
  const ObserveKernels observe(&seen_);
  gemm(x, Transpose::no, weight, Transpose::yes, y);
  gemm(y, Transpose::no, weight, Transpose::no, x);
  gemm(y, Transpose::yes, x, Transpose::no, weight, GemmMode::accumulate);
  EXPECT_THAT(seen_.names(), ElementsAre("gemm nt", "gemm nn", "gemm tn"));
  for (const KernelCall& call : seen_.calls) EXPECT_EQ(call.operations, 2 * 5 * 3 * 7);
  EXPECT_EQ(seen_.calls[0].bytes, 4 * (5 * 3 + 7 * 3 + 5 * 7));
  EXPECT_EQ(seen_.calls[2].bytes, 4 * (5 * 3 + 2 * 7 * 3 + 5 * 7)) << "what is added to is read";
}

// Products inside attention are not counted as separate calls.
TEST_F(Observer, CountsAttentionByTheKeysThatQueriesSee) {
  AttentionShape shape{.samples = 2, .context = 4, .heads = 2, .head_size = 8};
  const Tensor all = zeros(shape.rows(), 3 * shape.width());
  const Tensor output = zeros(shape.rows(), shape.width());
  const Tensor lse = zeros(shape.samples * shape.heads, shape.context);
  const ConstQkv inputs = split_qkv(shape, ConstTensor(all));
  const ObserveKernels observe(&seen_);
  causal_attention(shape, inputs, output, lse, arena_);
  const std::vector<int32_t> starts = {0, 0, 2, 2, 0, 0, 2, 2};  // documents of two tokens
  shape.starts = starts;
  causal_attention(shape, inputs, output, lse, arena_);
  EXPECT_THAT(seen_.names(), ElementsAre("causal_attention", "causal_attention"));
  EXPECT_EQ(seen_.calls[0].operations, 2 * 2.0 * shape.width() * 2 * (1 + 2 + 3 + 4));
  EXPECT_EQ(seen_.calls[1].operations, 2 * 2.0 * shape.width() * 2 * (1 + 2 + 1 + 2));
}

TEST_F(Observer, CountsConvolutionsByTheirWindows) {
  const ConvolutionShape shape{.input = {.height = 6, .width = 6, .channels = 3},
                               .window = {.height = 3, .width = 3},
                               .outputs = 4};
  const ImageShape output = shape.output();
  const Tensor x = zeros(2, shape.input.size()), y = zeros(2, output.size());
  const Tensor weight = zeros(shape.outputs, shape.weights());
  const ObserveKernels observe(&seen_);
  convolution(shape, x, weight, {}, y, arena_);
  convolution_backward_input(shape, y, weight, x, arena_);
  convolution_backward_weight(shape, x, y, weight, arena_);
  ASSERT_THAT(seen_.calls, SizeIs(3));
  const double expected = 2.0 * 2 * 4 * 4 * 4 * (3 * 3 * 3);  // samples, pixels, outputs, window
  for (const KernelCall& call : seen_.calls) EXPECT_EQ(call.operations, expected) << call.name;
}

TEST_F(Observer, CountsTheRowsThatAreLookedUp) {
  const Tensor table = zeros(100, 8), rows = zeros(2, 8);
  const std::vector<int32_t> indices = {3, 97};
  const ObserveKernels observe(&seen_);
  embedding(table, {}, indices, rows);
  EXPECT_EQ(seen_.calls.at(0).bytes, 2 * 2 * 8 * 4);
}

TEST_F(Observer, CountsNoCallWithinAnother) {
  const Tensor x = zeros(2, 8);
  const ObserveKernels observe(&seen_);
  {
    const KernelSpan span("outer");
    EXPECT_TRUE(span.observed());
    zero(x);
    const KernelSpan inner("inner");
    EXPECT_FALSE(inner.observed());
  }
  zero(x);
  EXPECT_THAT(seen_.names(), ElementsAre("outer", "zero"));
}

TEST_F(Observer, CountsACallOnceOnAThreadPool) {
  const Tensor x = zeros(64, 4096);
  ThreadPool pool(3);
  const UseThreads use(pool);
  const ObserveKernels observe(&seen_);
  gelu(x, x);
  EXPECT_THAT(seen_.names(), ElementsAre("gelu"));
}

TEST_F(Observer, SeesCallsThatThrow) {
  const Tensor table = zeros(4, 8), rows = zeros(1, 8);
  const std::vector<int32_t> indices = {9};
  const ObserveKernels observe(&seen_);
  EXPECT_THROW(embedding(table, {}, indices, rows), Error);
  zero(rows);
  EXPECT_THAT(seen_.names(), ElementsAre("embedding", "zero"));
}

}  // namespace
}  // namespace tutti::training
