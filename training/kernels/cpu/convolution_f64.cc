#include "training/kernels/cpu/convolution_f64.h"

#include <algorithm>

#include "training/kernels/cpu/kernels.h"

namespace tutti::training::cpu {
namespace {

// Calls body(pixel of the image, column of the im2col matrix) for one window's pixels.
template <typename Body>
void for_each_pixel(const ConvolutionShape& shape, int64_t top, int64_t left, Body&& body) {
  const Window& window = shape.window;
  for (int64_t i = 0; i < window.height; ++i) {
    for (int64_t j = 0; j < window.width; ++j) {
      const int64_t row = top + i * window.dilation;
      const int64_t col = left + j * window.dilation;
      if (row < 0 || row >= shape.input.height || col < 0 || col >= shape.input.width) continue;
      body(row * shape.input.width + col, i * window.width + j);
    }
  }
}

// Calls body(image element, im2col element) for all elements in one image's windows. The im2col
// matrix has a row per window, and columns in the order of the weights, group by group.
template <typename Body>
void for_each_window(const ConvolutionShape& shape, Body&& body) {
  const WindowTile windows = shape.windows();
  const int64_t places = shape.window.height * shape.window.width;
  const int64_t channels = shape.input.channels;
  for (int64_t window = 0; window < windows.height * windows.width; ++window) {
    const int64_t top = window / windows.width * shape.window.stride - windows.top;
    const int64_t left = window % windows.width * shape.window.stride - windows.left;
    for_each_pixel(shape, top, left, [&](int64_t pixel, int64_t place) {
      for (int64_t c = 0; c < channels; ++c) {
        body(static_cast<size_t>(pixel * channels + c),
             static_cast<size_t>((window * channels + c) * places + place));
      }
    });
  }
}

Tensor take_columns(const ConvolutionShape& shape, Arena& arena) {
  return arena.take(DType::f64, shape.output().pixels(), shape.weights() * shape.groups);
}

Tensor columns_of(const ConvolutionShape& shape, ConstTensor image, Arena& arena) {
  const Tensor columns = take_columns(shape, arena);
  const auto to = columns.values<double>();
  const auto from = image.values<double>();
  std::fill(to.begin(), to.end(), 0);
  for_each_window(shape, [&](size_t element, size_t column) { to[column] = from[element]; });
  return columns;
}

// Returns a view of one image's output as pixels x channels.
template <typename AnyTensor>
AnyTensor as_pixels(const ConvolutionShape& shape, AnyTensor row) {
  const ImageShape output = shape.output();
  return row.reshaped(output.pixels(), output.channels);
}

// A group's part of each of the three matrices.
struct GroupParts {
  int64_t columns, first_column;  // columns of the im2col matrix
  int64_t outputs, first_output;  // columns of outputs, rows of weights

  template <typename AnyTensor>
  AnyTensor of_columns(AnyTensor all) const {
    return all.col_range(first_column, columns);
  }
  template <typename AnyTensor>
  AnyTensor of_outputs(AnyTensor all) const {
    return all.col_range(first_output, outputs);
  }
  template <typename AnyTensor>
  AnyTensor of_weights(AnyTensor all) const {
    return all.row_range(first_output, outputs);
  }
};

template <typename Body>
void for_each_group(const ConvolutionShape& shape, Body&& body) {
  const int64_t outputs = shape.outputs / shape.groups;
  for (int64_t group = 0; group < shape.groups; ++group) {
    body(GroupParts{shape.weights(), group * shape.weights(), outputs, group * outputs});
  }
}

}  // namespace

void convolution_f64(const ConvolutionShape& shape, ConstTensor x, ConstTensor weight,
                     ConstTensor bias, Tensor y, Arena& arena) {
  for (int64_t sample = 0; sample < x.rows; ++sample) {
    const ArenaScope scope(arena);
    const Tensor columns = columns_of(shape, x.row_range(sample, 1), arena);
    const Tensor outputs = as_pixels(shape, y.row_range(sample, 1));
    for_each_group(shape, [&](const GroupParts& group) {
      cpu::gemm(group.of_columns(columns), Transpose::no, group.of_weights(weight), Transpose::yes,
                group.of_outputs(outputs), GemmMode::overwrite,
                bias.empty() ? bias : group.of_outputs(bias));
    });
  }
}

void convolution_backward_input_f64(const ConvolutionShape& shape, ConstTensor dy,
                                    ConstTensor weight, Tensor dx, Arena& arena) {
  for (int64_t sample = 0; sample < dy.rows; ++sample) {
    const ArenaScope scope(arena);
    const Tensor columns = take_columns(shape, arena);
    const ConstTensor outputs = as_pixels(shape, dy.row_range(sample, 1));
    for_each_group(shape, [&](const GroupParts& group) {
      cpu::gemm(group.of_outputs(outputs), Transpose::no, group.of_weights(weight), Transpose::no,
                group.of_columns(columns));
    });
    const auto from = columns.values<double>();
    const auto to = dx.row_range(sample, 1).values<double>();
    std::fill(to.begin(), to.end(), 0);
    for_each_window(shape, [&](size_t element, size_t column) { to[element] += from[column]; });
  }
}

void convolution_backward_weight_f64(const ConvolutionShape& shape, ConstTensor x, ConstTensor dy,
                                     Tensor weight_gradient, Arena& arena) {
  for (int64_t sample = 0; sample < x.rows; ++sample) {
    const ArenaScope scope(arena);
    const Tensor columns = columns_of(shape, x.row_range(sample, 1), arena);
    const ConstTensor outputs = as_pixels(shape, dy.row_range(sample, 1));
    for_each_group(shape, [&](const GroupParts& group) {
      cpu::gemm(group.of_outputs(outputs), Transpose::yes, group.of_columns(columns), Transpose::no,
                group.of_weights(weight_gradient), GemmMode::accumulate);
    });
  }
}

}  // namespace tutti::training::cpu
