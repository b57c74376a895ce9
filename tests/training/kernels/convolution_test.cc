// Tests convolutions of any shape: their values, and that nothing is written outside their memory.
// All numbers are small integers, so that every sum is exact.
#include "training/kernels/convolution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "tests/training/support/fenced_allocations.h"
#include "tests/training/support/host_tensor.h"
#include "training/core/thread_pool.h"

namespace tutti::training::testing {
namespace {

struct Case {
  ConvolutionShape shape;
  int64_t samples = 1;
  int threads = 1;
};

std::string describe(const Case& c) {
  const ConvolutionShape& shape = c.shape;
  return cat(c.samples, " images of ", shape.input.height, " x ", shape.input.width, " x ",
             shape.input.channels, " to ", shape.outputs, " channels, window ", shape.window.height,
             " x ", shape.window.width, ", stride ", shape.window.stride, ", padding ",
             shape.window.padding, ", dilation ", shape.window.dilation, ", ", shape.groups,
             " groups, ", c.threads, " threads",
             shape.tile ? cat(", ", shape.tile->height, " x ", shape.tile->width, " windows from -",
                              shape.tile->top, ", -", shape.tile->left)
                        : "");
}

// A tensor whose memory is followed by an inaccessible page.
class Fenced {
 public:
  Fenced(DType dtype, int64_t rows, int64_t cols) {
    void* memory = nullptr;
    const size_t bytes = tensor_at(memory, dtype, rows, cols).bytes();
    EXPECT_EQ(::posix_memalign(&memory, sizeof(void*), bytes), 0);
    view_ = tensor_at(memory, dtype, rows, cols);
  }
  ~Fenced() { std::free(view_.data); }  // NOLINT: from posix_memalign()
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  operator Tensor() const { return view_; }
  operator ConstTensor() const { return view_; }

 private:
  Tensor view_;
};

void fill(Tensor tensor, uint64_t stream) {
  std::minstd_rand random(static_cast<unsigned>(stream));
  for (int64_t row = 0; row < tensor.rows; ++row) {
    for (int64_t col = 0; col < tensor.cols; ++col) {
      set(tensor, row, col, static_cast<double>(random() % 7) - 3);
    }
  }
}

struct Results {
  std::vector<double> y, dx, weight_gradient;
};

Results convolved(const Case& c, DType dtype) {
  const ConvolutionShape& shape = c.shape;
  const int64_t weights = shape.weights();
  const Fenced x(dtype, c.samples, shape.input.size()), dx(dtype, c.samples, shape.input.size());
  const Fenced y(dtype, c.samples, shape.output().size());
  const Fenced dy(dtype, c.samples, shape.output().size());
  const Fenced weight(dtype, shape.outputs, weights), bias(dtype, 1, shape.outputs);
  const Fenced gradient(dtype == DType::f64 ? dtype : DType::f32, shape.outputs, weights);
  fill(x, 1);
  fill(dy, 2);
  fill(weight, 3);
  fill(bias, 4);
  fill(gradient, 5);  // backward adds to it
  Arena arena;
  convolution(shape, x, weight, bias, y, arena);
  convolution_backward_input(shape, dy, weight, dx, arena);
  convolution_backward_weight(shape, x, dy, gradient, arena);
  return {doubles(y), doubles(dx), doubles(gradient)};
}

std::vector<double> rounded(const std::vector<double>& exact, DType dtype) {
  HostTensor tensor(dtype, 1, std::ssize(exact));
  assign(tensor, exact);
  return doubles(tensor);
}

// Computes on a new thread, because each thread has its own oneDNN primitives and workspace. A
// workspace that was made for a larger shape would hide that the workspace of this shape is too
// small.
Results convolved_anew(const Case& c, DType dtype) {
  Results found;
  std::thread([&] {
    ThreadPool pool(c.threads);
    const UseThreads use(pool);
    found = convolved(c, dtype);
  }).join();
  return found;
}

void expect_right(const Case& c) {
  SCOPED_TRACE(describe(c));
  const Results exact = convolved(c, DType::f64);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Results found = convolved_anew(c, dtype);
    EXPECT_EQ(found.y, rounded(exact.y, dtype)) << name(dtype);
    EXPECT_EQ(found.dx, rounded(exact.dx, dtype)) << name(dtype);
    EXPECT_EQ(found.weight_gradient, exact.weight_gradient) << name(dtype);
  }
  EXPECT_EQ(damaged_blocks(), 0);
}

TEST(FencedAllocationsDeathTest, EndWhereMemoryEnds) {
  const auto write = [](ptrdiff_t offset) {
    const Fenced tensor(DType::f32, 1, 1024);
    *(Tensor(tensor).data + offset) = std::byte{1};
    std::exit(static_cast<int>(damaged_blocks()));
  };
  EXPECT_EXIT(write(4095), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(write(4096), ::testing::KilledBySignal(SIGSEGV), "");
  const auto write_near = [](ptrdiff_t offset) {
    const Fenced tensor(DType::bf16, 1, 3);  // two bytes smaller than its alignment
    *(Tensor(tensor).data + offset) = std::byte{1};
    std::exit(static_cast<int>(damaged_blocks()));
  };
  EXPECT_EXIT(write_near(5), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(write_near(6), ::testing::ExitedWithCode(1), "");
  EXPECT_EXIT(write_near(-1), ::testing::ExitedWithCode(1), "");
}

// The shortcuts of a residual network with few channels have 1x1 windows. Their implementations in
// oneDNN write beyond their workspace: on AVX2 with fewer than 8 channels, on AVX-512 with fewer
// than 16 if images are large.
TEST(ConvolutionKernelTest, ShortcutsOfFewChannels) {
  const Window every_other{.height = 1, .width = 1, .stride = 2, .padding = 0};
  expect_right({{{8, 8, 4}, every_other, 8}, 2});
  expect_right({{{8, 8, 7}, every_other, 3}, 1});
  expect_right({{{128, 128, 1}, every_other, 8}, 1});
  expect_right({{{128, 64, 12}, every_other, 9}, 1});
  expect_right({{{64, 128, 15}, {.height = 1, .width = 1, .stride = 3, .padding = 0}, 4}, 2});
}

// oneDNN's implementations for bf16 are wrong if strides exceed the windows or the images' width:
// they write beyond their workspace, or add the previous contents of their memory.
TEST(ConvolutionKernelTest, LongStrides) {
  expect_right({{{64, 17, 40}, {.height = 1, .width = 7, .stride = 3, .padding = 0}, 32}, 3});
  expect_right({{{64, 40, 17}, {.height = 2, .width = 2, .stride = 4, .padding = 1}, 15}, 1});
  expect_right({{{64, 1, 1}, {.height = 3, .width = 1, .stride = 3, .padding = 0}, 2}, 1});
  expect_right({{{64, 2, 1}, {.height = 2, .width = 1, .stride = 3, .padding = 0}, 17}, 2});
  expect_right({{{33, 1, 2}, {.height = 3, .width = 3, .stride = 3, .padding = 1}, 7}, 2});
  expect_right({{{8, 1, 31}, {.height = 3, .width = 3, .stride = 3, .padding = 1}, 32}, 4, 3});
}

// Returns a random tile of windows. Each of its windows overlaps the image, and together the
// windows cover the image.
WindowTile random_tile(const ConvolutionShape& shape, std::mt19937_64& random) {
  const auto below = [&](int64_t end) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
  };
  const Window& window = shape.window;
  const int64_t top = below(window.rows_spanned()), left = below(window.columns_spanned());
  const auto places = [&](int64_t size, int64_t before, int64_t spanned) {
    const int64_t least = std::max<int64_t>(0, size + before - spanned) / window.stride + 1;
    const int64_t most = (size - 1 + before) / window.stride + 1;
    return least + below(most - least + 1);
  };
  return {top, left, places(shape.input.height, top, window.rows_spanned()),
          places(shape.input.width, left, window.columns_spanned())};
}

// CONVOLUTION_CASES is the number of random cases, CONVOLUTION_SEED their seed.
TEST(ConvolutionKernelTest, AnyShape) {
  const auto setting = [](const char* variable, uint64_t fallback) {
    const char* const text = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe)
    return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
  };
  std::mt19937_64 random(setting("CONVOLUTION_SEED", 1));
  const auto one_of = [&](std::vector<int64_t> all) { return all[random() % all.size()]; };
  const uint64_t cases = setting("CONVOLUTION_CASES", 60);
  for (uint64_t i = 0; i < cases;) {
    Case c{{{one_of({1, 2, 5, 8, 9, 16, 33, 64}), one_of({1, 3, 4, 8, 17, 40}),
             one_of({1, 2, 3, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 40})},
            {.height = one_of({1, 1, 2, 3, 5, 7}),
             .width = one_of({1, 1, 2, 3, 5, 7}),
             .stride = one_of({1, 2, 2, 3}),
             .padding = one_of({0, 0, 1, 2, 3}),
             .dilation = one_of({1, 1, 1, 2, 3})},
            one_of({1, 2, 3, 7, 8, 9, 15, 16, 17, 32, 33})},
           one_of({1, 2, 3, 4, 8}),
           static_cast<int>(one_of({1, 1, 3}))};
    c.shape.groups = one_of({1, 1, 1, 2, 3, 8, c.shape.input.channels});
    const auto& [input, window, outputs, groups, tile] = c.shape;
    if (input.channels % groups != 0 || outputs % groups != 0) continue;
    if (random() % 3 == 0) c.shape.tile = random_tile(c.shape, random);
    const bool fits = window.padding < std::min(window.rows_spanned(), window.columns_spanned()) &&
                      input.height + 2 * window.padding >= window.rows_spanned() &&
                      input.width + 2 * window.padding >= window.columns_spanned();
    const int64_t work = c.samples * input.size() * outputs * window.height * window.width;
    // A larger case would take more than a tenth of a second in double.
    if ((!fits && !tile) || work > 1 << 23) continue;
    expect_right(c);
    ++i;
  }
}

}  // namespace
}  // namespace tutti::training::testing
