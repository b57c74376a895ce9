// Tests layers for images that are divided over a grid of ranks. For any windows and grid, their
// results equal those for whole images.
#include "training/modules/image_grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/support/ranks.h"
#include "tests/training/support/bound_parameters.h"
#include "tests/training/support/host_tensor.h"
#include "training/modules/convolution.h"
#include "training/modules/pooling.h"
#include "training/parallel/halo_exchange.h"
#include "training/parallel/mesh.h"

namespace tutti::training::testing {
namespace {

using tutti::testing::run_ranks;

const HaloExchange kHalos(Axis::spatial);

// The results of a layer: for whole images, or for the tiles of this rank.
struct Results {
  std::vector<double> output, input_gradient;
  std::vector<std::vector<double>> gradients;  // gradients of the parameters
};

// A layer on a grid. `forward` and `backward` have the signatures of the modules' functions.
struct Layer {
  ImageShape output;
  std::function<Tensor(Pass&, ConstTensor)> forward;
  std::function<Tensor(Pass&, ConstTensor)> backward;
};
struct Case {
  std::string name;
  ImageShape input;
  int64_t samples = 2;
  std::function<Layer(ParameterTable&, const Spatial&)> make;
};

Rectangle all_of(const ImageShape& image) { return {{0, image.height}, {0, image.width}}; }

HostTensor tile_of(ConstTensor images, const ImageShape& whole, const ImageGrid& grid) {
  HostTensor tile(images.dtype, images.rows, grid.own(whole).size());
  copy_shared(images, all_of(whole), tile, grid.tile(whole));
  return tile;
}

// Returns small integers, so that sums are exact in any order, also in f32.
HostTensor numbers(DType dtype, int64_t rows, int64_t cols, unsigned seed) {
  HostTensor tensor(dtype, rows, cols);
  std::minstd_rand random(seed);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      set(tensor, row, col, static_cast<double>(random() % 7) - 3);
    }
  }
  return tensor;
}

Results computed(const Case& c, DType dtype, const Spatial& spatial, Mesh* mesh) {
  ParameterTable table;
  const Layer layer = c.make(table, spatial);
  BoundParameters parameters(table, dtype);
  for (size_t i = 0; i < table.specs().size(); ++i) {
    const Tensor value = parameters.value(static_cast<int>(i));
    assign(value, doubles(numbers(dtype, value.rows, value.cols, static_cast<unsigned>(i) + 10)));
  }
  TestPass test(dtype);
  test.pass.mesh = mesh;
  const HostTensor x = numbers(dtype, c.samples, c.input.size(), 1);
  const HostTensor dy = numbers(dtype, c.samples, layer.output.size(), 2);
  const HostTensor own_x = tile_of(x, c.input, spatial.grid);
  const HostTensor own_dy = tile_of(dy, layer.output, spatial.grid);
  Results results;
  results.output = doubles(layer.forward(test.pass, own_x));
  results.input_gradient = doubles(layer.backward(test.pass, own_dy));
  for (size_t i = 0; i < table.specs().size(); ++i) {
    results.gradients.push_back(doubles(parameters.gradient(static_cast<int>(i))));
  }
  return results;
}

std::vector<double> tile_of(const std::vector<double>& whole, int64_t samples,
                            const ImageShape& image, const ImageGrid& grid) {
  HostTensor all(DType::f64, samples, image.size());
  assign(all, whole);
  return doubles(tile_of(all, image, grid));
}

void expect_as_whole(const std::vector<Case>& cases, GridShape shape, DType dtype) {
  std::vector<Results> whole;
  for (const Case& c : cases) whole.push_back(computed(c, dtype, {}, nullptr));
  run_ranks(shape.ranks(), [&](const Job& job) {
    Mesh mesh(Communicator::init(job), {.data = 1, .spatial = shape});
    mesh.along(Axis::spatial);
    const ImageGrid grid = ImageGrid::of(mesh.place());
    for (size_t i = 0; i < cases.size(); ++i) {
      const Case& c = cases[i];
      SCOPED_TRACE(cat(c.name, " on rank ", job.rank, " of ", shape.rows, " x ", shape.columns));
      const Results own = computed(c, dtype, {grid, &kHalos}, &mesh);
      ParameterTable table;
      const ImageShape output = c.make(table, {}).output;
      EXPECT_EQ(own.output, tile_of(whole[i].output, c.samples, output, grid));
      EXPECT_EQ(own.input_gradient, tile_of(whole[i].input_gradient, c.samples, c.input, grid));
      for (size_t p = 0; p < own.gradients.size(); ++p) {
        std::vector<double> sum = own.gradients[p];
        mesh.along(Axis::spatial).all_reduce(std::span(sum));
        EXPECT_EQ(sum, whole[i].gradients[p]);
      }
      if (::testing::Test::HasFailure()) return;
    }
  });
}

Case convolution_case(const ImageShape& input, const ConvolutionOptions& options) {
  return {
      .name = cat("convolution of ", input.height, " x ", input.width, " x ", input.channels,
                  ", kernel ", options.kernel, ", stride ", options.stride, ", padding ",
                  options.padding, ", dilation ", options.dilation, ", groups ", options.groups),
      .input = input,
      .make = [=](ParameterTable& table, const Spatial& spatial) {
        ConvolutionOptions own = options;
        own.spatial = spatial;
        const auto layer = std::make_shared<Convolution>(table, "c", input, own);
        const auto saved = std::make_shared<Convolution::Saved>();
        return Layer{layer->output(),
                     [=](Pass& pass, ConstTensor x) { return layer->forward(pass, x, *saved); },
                     [=](Pass& pass, ConstTensor dy) { return layer->backward(pass, dy, *saved); }};
      }};
}

Case transposed_case(const ImageShape& input, const ConvolutionOptions& options, int64_t more) {
  return {
      .name =
          cat("transposed convolution of ", input.height, " x ", input.width, ", kernel ",
              options.kernel, ", stride ", options.stride, ", padding ", options.padding,
              ", dilation ", options.dilation, ", groups ", options.groups, ", ", more, " more"),
      .input = input,
      .make = [=](ParameterTable& table, const Spatial& spatial) {
        ConvolutionOptions own = options;
        own.spatial = spatial;
        const auto layer =
            std::make_shared<TransposedConvolution>(table, "c", input, own, more, more);
        const auto saved = std::make_shared<TransposedConvolution::Saved>();
        return Layer{layer->output(),
                     [=](Pass& pass, ConstTensor x) { return layer->forward(pass, x, *saved); },
                     [=](Pass& pass, ConstTensor dy) { return layer->backward(pass, dy, *saved); }};
      }};
}

Case pooling_case(PoolingKind kind, const ImageShape& input, const Window& window) {
  return {.name = cat(kind == PoolingKind::max ? "max" : "average", " pooling of ", input.height,
                      " x ", input.width, ", window ", window.height, " x ", window.width,
                      ", stride ", window.stride, ", padding ", window.padding),
          .input = input,
          .make = [=](ParameterTable&, const Spatial& spatial) {
            const auto layer = std::make_shared<Pooling>(kind, input, window, spatial);
            const auto saved = std::make_shared<Pooling::Saved>();
            return Layer{
                layer->output(),
                [=](Pass& pass, ConstTensor x) { return layer->forward(pass, x, *saved); },
                [=](Pass& pass, ConstTensor dy) { return layer->backward(pass, dy, *saved); }};
          }};
}

bool fits(const ImageShape& input, const ConvolutionOptions& options) {
  const int64_t spanned = (options.kernel - 1) * options.dilation + 1;
  return options.padding < spanned &&
         std::min(input.height, input.width) + 2 * options.padding >= spanned;
}

// Returns cases with all combinations of kernels and strides. Paddings and dilations vary in turn.
// Some images have heights that are not evenly divisible, or fewer rows than a halo.
std::vector<Case> convolutions() {
  std::vector<Case> all;
  int64_t number = 0;
  for (const int64_t kernel : {1, 2, 3, 4, 5, 6, 7}) {
    for (const int64_t stride : {1, 2, 3}) {
      for (const ImageShape& input : {ImageShape{11, 9, 2}, ImageShape{5, 13, 4}}) {
        for (const int64_t dilation : {1, 2, 3}) {
          const ConvolutionOptions options{.outputs = 4,
                                           .kernel = kernel,
                                           .stride = stride,
                                           .padding = number % 3 * (kernel - 1) / 2,
                                           .dilation = dilation,
                                           .groups = 1 + number % 2,
                                           .bias = number % 2 == 0};
          ++number;
          if (fits(input, options)) all.push_back(convolution_case(input, options));
        }
      }
    }
  }
  return all;
}

std::vector<Case> transposed_convolutions() {
  std::vector<Case> all;
  int64_t number = 0;
  for (const int64_t kernel : {1, 2, 3, 4, 5, 7}) {
    for (const int64_t stride : {1, 2, 3}) {
      for (const int64_t dilation : {1, 2}) {
        const ConvolutionOptions options{.outputs = 4,
                                         .kernel = kernel,
                                         .stride = stride,
                                         .padding = number % 2 * (kernel - 1) / 2,
                                         .dilation = dilation,
                                         .groups = 1 + number % 2,
                                         .bias = number % 3 == 0};
        all.push_back(transposed_case({5, 6, 2}, options, number % stride));
        ++number;
      }
    }
  }
  return all;
}

std::vector<Case> poolings() {
  std::vector<Case> all;
  for (const PoolingKind kind : {PoolingKind::max, PoolingKind::average}) {
    for (const Window& window :
         {Window{2, 2, 2, 0}, Window{3, 3, 2, 1}, Window{3, 3, 1, 1}, Window{2, 4, 1, 0},
          Window{4, 4, 4, 0}, Window{1, 1, 2, 0}, Window{2, 2, 3, 1}}) {
      // Means of integers are exact only over 1, 2, 4 or 8 pixels.
      const bool is_exact =
          std::has_single_bit(static_cast<uint64_t>(window.height * window.width));
      if (kind == PoolingKind::average && !is_exact) continue;
      for (const ImageShape& input : {ImageShape{11, 9, 3}, ImageShape{4, 8, 5}}) {
        all.push_back(pooling_case(kind, input, window));
      }
    }
  }
  return all;
}

constexpr GridShape kGrids[] = {{1, 2}, {1, 3}, {2, 2}, {3, 1}, {4, 2}, {7, 1}};

TEST(ImageGridTest, ConvolutionsEqualThoseOfWholeImages) {
  for (const GridShape& grid : kGrids) {
    expect_as_whole(convolutions(), grid, DType::f64);
    expect_as_whole(convolutions(), grid, DType::f32);
  }
}

TEST(ImageGridTest, TransposedConvolutionsEqualThoseOfWholeImages) {
  for (const GridShape& grid : kGrids) {
    expect_as_whole(transposed_convolutions(), grid, DType::f64);
    expect_as_whole(transposed_convolutions(), grid, DType::f32);
  }
}

TEST(ImageGridTest, PoolingEqualsThatOfWholeImages) {
  for (const GridShape& grid : kGrids) expect_as_whole(poolings(), grid, DType::f64);
}

// The transposed convolution is the transpose of the convolution C: <C x, y> = <x, C^T y>.
TEST(ImageGridTest, TransposedConvolutionIsTheTranspose) {
  for (const Case& c : transposed_convolutions()) {
    SCOPED_TRACE(c.name);
    ParameterTable table;
    const Layer layer = c.make(table, {});
    const BoundParameters parameters(table, DType::f64);
    for (size_t i = 0; i < table.specs().size(); ++i) {
      const Tensor value = parameters.value(static_cast<int>(i));
      assign(value, i == 0 ? doubles(numbers(DType::f64, value.rows, value.cols, 10))
                           : std::vector<double>(static_cast<size_t>(value.size()), 0.0));
    }
    TestPass test;
    const HostTensor x = numbers(DType::f64, 1, c.input.size(), 1);
    const HostTensor y = numbers(DType::f64, 1, layer.output.size(), 2);
    const std::vector<double> forward = doubles(layer.forward(test.pass, x));
    const std::vector<double> backward = doubles(layer.backward(test.pass, y));
    const auto product = [](const std::vector<double>& a, const std::vector<double>& b) {
      double sum = 0;
      for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
      return sum;
    };
    EXPECT_EQ(product(forward, doubles(y)), product(doubles(x), backward));
  }
}

// In forward and in backward, a rank sends (kernel - 1) / 2 rows to each of its neighbours above
// and below.
TEST(ImageGridTest, HaloBytesAreThoseOfTheFormula) {
  constexpr int kRanks = 4;
  constexpr int64_t kSize = 32, kChannels = 3, kSamples = 2;
  for (const int64_t kernel : {1, 3, 5, 7}) {
    run_ranks(kRanks, [&](const Job& job) {
      Mesh mesh(Communicator::init(job), {.data = 1, .spatial = {kRanks, 1}});
      mesh.along(Axis::spatial);
      const Case c = convolution_case(
          {kSize, kSize, kChannels}, {.outputs = 5, .kernel = kernel, .padding = (kernel - 1) / 2});
      computed(c, DType::f32, {ImageGrid::of(mesh.place()), &kHalos}, &mesh);
      const int neighbours = job.rank == 0 || job.rank == kRanks - 1 ? 1 : 2;
      const auto row = static_cast<double>(kSamples * kSize * kChannels) * sizeof(float);
      EXPECT_EQ(mesh.unit_traffic().bytes[static_cast<size_t>(Axis::spatial)],
                2 * neighbours * static_cast<double>((kernel - 1) / 2) * row);
    });
  }
}

TEST(ImageGridTest, MeansUseSumsOverRanks) {
  const ImageShape image{5, 3, 2};
  const HostTensor x = numbers(DType::f64, 2, image.size(), 1);
  Arena arena;
  const auto means = [&](const ImageGrid& grid) {
    TestPass test;
    const HostTensor own = tile_of(x, image, grid);
    return doubles(GlobalAverage(image, grid).forward(test.pass, own));
  };
  const std::vector<double> whole = means({});
  std::vector<double> sum(whole.size());
  for (int rank = 0; rank < 14; ++rank) {  // some tiles are empty
    const std::vector<double> part = means({{7, 2}, rank});
    std::ranges::transform(sum, part, sum.begin(), std::plus<>());
  }
  for (size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(sum[i], whole[i], 1e-12);
}

}  // namespace
}  // namespace tutti::training::testing
