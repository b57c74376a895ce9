#include "training/modules/convolution.h"

#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "training/core/thread_pool.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {
namespace {

Window window_of(const ConvolutionOptions& options) {
  return {.height = options.kernel,
          .width = options.kernel,
          .stride = options.stride,
          .padding = options.padding,
          .dilation = options.dilation};
}

ConvolutionShape shape_of(const ImageShape& input, const ConvolutionOptions& options) {
  return {.input = input,
          .window = window_of(options),
          .outputs = options.outputs,
          .groups = options.groups};
}

// Returns the options with only the outputs that this rank computes.
ConvolutionOptions own_outputs(ConvolutionOptions options, const MeshPlace& place) {
  options.outputs = slice_of({options.outputs}, options.placement, place).count();
  return options;
}

// Returns the convolution whose transpose has this input.
ConvolutionShape transposed_shape(const ImageShape& input, const ConvolutionOptions& options,
                                  int64_t more_rows, int64_t more_columns) {
  const Window window = window_of(options);
  const auto refuse = [&](const char* what, int64_t size) {
    throw Error(ErrorCode::invalid_argument,
                cat("a transposed convolution of ", input.height, " x ", input.width, " images by ",
                    options.kernel, " x ", options.kernel, " windows, stride ", options.stride,
                    ", padding ", options.padding, " has ", what, ' ', size),
                {.remedy = "use sizes of at least 1, padding smaller than the window, and fewer "
                           "additional rows and columns than the stride"});
  };
  if (options.stride < 1) refuse("the stride", options.stride);
  for (const int64_t more : {more_rows, more_columns}) {
    if (more < 0 || more >= options.stride) refuse("additional output rows or columns:", more);
  }
  const auto size = [&](int64_t inputs, int64_t spanned, int64_t more) {
    const int64_t all = (inputs - 1) * options.stride - 2 * options.padding + spanned + more;
    if (all < 1) refuse("a height or width of", all);
    return all;
  };
  return {.input = {.height = size(input.height, window.rows_spanned(), more_rows),
                    .width = size(input.width, window.columns_spanned(), more_columns),
                    .channels = options.outputs},
          .window = window,
          .outputs = input.channels,
          .groups = options.groups};
}

// Adds the weight. `outputs`: number of output channels of the whole convolution. The initial
// variance preserves the variance of ReLU activations.
const Parameter* add_weight(ParameterTable& table, const std::string& name,
                            const ConvolutionShape& shape, int64_t outputs, int64_t fan_in,
                            const Placement& placement) {
  const Window& window = shape.window;
  return table.add(name + ".weight",
                   {outputs, shape.input.channels / shape.groups, window.height, window.width},
                   {Initial::Kind::normal, std::sqrt(2 / static_cast<double>(fan_in))}, placement);
}

double multiplications_of(const ConvolutionShape& shape) {
  return static_cast<double>(shape.output().size() * shape.weights());
}

// Adds a value per channel to images of `width` pixels, one row of pixels at a time.
void add_to_pixels(Pass& pass, ConstTensor channels, int64_t width, Tensor images) {
  if (images.empty()) return;
  const ArenaScope scope(pass.arena);
  const Tensor values = pass.arena.take(images.dtype, width, channels.cols);
  for (int64_t pixel = 0; pixel < width; ++pixel) copy(channels, values.row_range(pixel, 1));
  const ConstTensor row = values.reshaped(1, values.size());
  const Tensor rows = images.reshaped(images.size() / row.cols, row.cols);
  parallel_rows(rows.rows, row.cols, [&](int64_t first, int64_t count) {
    for (int64_t at = first; at < first + count; ++at) {
      add(rows.row_range(at, 1), row, rows.row_range(at, 1));
    }
  });
}

ConstTensor value_of(const Parameter* parameter) {
  return parameter == nullptr ? ConstTensor{} : ConstTensor(parameter->value);
}

}  // namespace

Convolution::Convolution(ParameterTable& table, const std::string& name, const ImageShape& input,
                         const ConvolutionOptions& options)
    : map_(shape_of(input, own_outputs(options, table.mesh())), options.spatial),
      weight_(add_weight(table, name, map_.whole(), options.outputs, map_.whole().weights(),
                         options.placement)) {
  if (options.bias) bias_ = table.add(name + ".bias", {options.outputs}, {}, options.placement);
}

double Convolution::multiplications() const { return multiplications_of(map_.whole()); }

Tensor Convolution::forward(Pass& pass, ConstTensor input, Saved& saved) const {
  saved.input = input;
  return map_.apply(pass, input, weight_->value, value_of(bias_), saved.halo);
}

void Convolution::backward_weight(Pass& pass, const Saved& saved) const {
  const ConstTensor gradient = saved.output_gradient;
  map_.add_weight_gradient(pass, saved.input, saved.halo, gradient, weight_->gradient);
  if (bias_ == nullptr) return;
  add_column_sums(gradient.reshaped(gradient.rows * map_.output_pixels(), output().channels),
                  bias_->gradient, pass.arena);
}

Tensor Convolution::backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  saved.output_gradient = output_gradient;
  return map_.adjoint(pass, output_gradient, weight_->value, [&] {
    pass.finish([this, &pass, &saved] { backward_weight(pass, saved); });
  });
}

void Convolution::backward_first(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  saved.output_gradient = output_gradient;
  pass.finish([this, &pass, &saved] { backward_weight(pass, saved); });
}

TransposedConvolution::TransposedConvolution(ParameterTable& table, const std::string& name,
                                             const ImageShape& input,
                                             const ConvolutionOptions& options, int64_t output_rows,
                                             int64_t output_columns)
    : map_(transposed_shape(input, options, output_rows, output_columns), options.spatial),
      weight_(add_weight(table, name, map_.whole(), map_.whole().outputs,
                         input.channels / options.groups * options.kernel * options.kernel, {})) {
  if (options.bias) bias_ = table.add(name + ".bias", {options.outputs}, {});
}

double TransposedConvolution::multiplications() const { return multiplications_of(map_.whole()); }

Tensor TransposedConvolution::forward(Pass& pass, ConstTensor input, Saved& saved) const {
  saved.input = input;
  const Tensor result = map_.adjoint(pass, input, weight_->value, [] {});
  if (bias_ == nullptr) return result;
  add_to_pixels(pass, bias_->value, map_.windows().own.columns.count, result);
  return result;
}

// The windows of the convolution that is transposed slide over the gradient of this layer's output.
void TransposedConvolution::backward_weight(Pass& pass, const Saved& saved) const {
  const ConstTensor gradient = saved.output_gradient;
  map_.add_weight_gradient(pass, gradient, saved.halo, saved.input, weight_->gradient);
  if (bias_ == nullptr) return;
  const int64_t channels = output().channels;
  add_column_sums(gradient.reshaped(gradient.size() / channels, channels), bias_->gradient,
                  pass.arena);
}

Tensor TransposedConvolution::backward(Pass& pass, ConstTensor output_gradient,
                                       Saved& saved) const {
  saved.output_gradient = output_gradient;
  const Tensor input_gradient = map_.apply(pass, output_gradient, weight_->value, {}, saved.halo);
  pass.finish([this, &pass, &saved] { backward_weight(pass, saved); });
  return input_gradient;
}

}  // namespace tutti::training
