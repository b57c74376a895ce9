#include "training/modules/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "training/kernels/batch_norm.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {
namespace {

// Returns a view of images as a matrix of pixels.
template <typename AnyTensor>
AnyTensor as_pixels(AnyTensor images, int64_t channels) {
  require_shapes(images.contiguous() && images.size() % channels == 0, "BatchNorm");
  return images.reshaped(images.size() / channels, channels);
}

// Writes numbers to a row, rounded to its type.
void write(std::span<const double> numbers, Tensor row) {
  const void* const data = numbers.data();
  convert(tensor_at(data, DType::f64, 1, std::ssize(numbers)), row);
}

}  // namespace

BatchNorm::BatchNorm(ParameterTable& table, const std::string& name, int64_t channels,
                     const BatchNormOptions& options)
    : name_(name),
      channels_(channels),
      options_(options),
      gain_(table.add(name + ".weight", {channels},
                      {Initial::Kind::constant, options.zero_gain ? 0.0 : 1.0})),
      bias_(table.add(name + ".bias", {channels}, {})),
      running_mean_(static_cast<size_t>(channels), 0.0f),
      running_variance_(static_cast<size_t>(channels), 1.0f) {}

std::vector<NamedBuffer> BatchNorm::buffers() {
  return {{name_ + ".running_mean", running_mean_}, {name_ + ".running_var", running_variance_}};
}

void BatchNorm::set_statistics(Tensor statistics, std::span<const double> mean,
                               std::span<const double> variance) const {
  std::vector<double> inverse;
  for (const double each : variance) inverse.push_back(1 / std::sqrt(each + options_.epsilon));
  write(mean, statistics.row_range(0, 1));
  write(inverse, statistics.row_range(1, 1));
}

void BatchNorm::update_running(std::span<const double> mean, std::span<const double> variance,
                               double count) {
  const double unbiased = count > 1 ? count / (count - 1) : 1;
  const auto mix = [&](float& running, double batch) {
    running = static_cast<float>((1 - options_.momentum) * static_cast<double>(running) +
                                 options_.momentum * batch);
  };
  for (size_t c = 0; c < mean.size(); ++c) {
    mix(running_mean_[c], mean[c]);
    mix(running_variance_[c], variance[c] * unbiased);
  }
}

void BatchNorm::take_statistics(Pass& pass, ConstTensor pixels, Saved& saved) {
  const auto channels = static_cast<size_t>(channels_);
  std::vector<double> mean(channels), variance(channels);
  saved.count = 0;
  if (pass.training) {
    // Sums, sums of squares and the count are reduced in one message.
    std::vector<double> moments(2 * channels + 1);
    if (!pass.weightless()) {
      column_moments(pixels, std::span(moments).first(2 * channels), pass.arena);
      moments.back() = static_cast<double>(pixels.rows);
    }
    if (options_.reducer != nullptr) options_.reducer->sum(moments);
    saved.count = moments.back();
    for (size_t c = 0; saved.count > 0 && c < channels; ++c) {
      mean[c] = moments[c] / saved.count;
      // Rounding must not make the variance negative; NaN is kept.
      const double difference = moments[channels + c] / saved.count - mean[c] * mean[c];
      variance[c] = difference < 0 ? 0 : difference;
    }
    if (saved.count > 0 && !pass.recomputing) update_running(mean, variance, saved.count);
  }
  if (saved.count == 0) {
    std::ranges::copy(running_mean_, mean.begin());
    std::ranges::copy(running_variance_, variance.begin());
  }
  set_statistics(saved.statistics, mean, variance);
}

Tensor BatchNorm::forward(Pass& pass, ConstTensor input, Saved& saved) {
  saved.input = input;
  saved.output = pass.arena.take(input.dtype, input.rows, input.cols);
  saved.statistics = pass.arena.take(value_type(input.dtype), 2, channels_);
  const ArenaScope scope(pass.arena);
  const ConstTensor pixels = as_pixels(input, channels_);
  take_statistics(pass, pixels, saved);
  batch_norm(pixels, saved.statistics, gain_->value, bias_->value, options_.relu,
             as_pixels(saved.output, channels_), pass.arena);
  return saved.output;
}

ConstTensor BatchNorm::cut_output(const Saved& saved) const {
  return options_.relu ? ConstTensor(as_pixels(saved.output, channels_)) : ConstTensor{};
}

Tensor BatchNorm::backward_input(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  const ConstTensor input = saved.input;
  const Tensor input_gradient = pass.arena.take(input.dtype, input.rows, input.cols);
  saved.sums.assign(2 * static_cast<size_t>(channels_), 0);
  const ArenaScope scope(pass.arena);
  const ConstTensor x = as_pixels(input, channels_);
  const ConstTensor dy = as_pixels(output_gradient, channels_);
  const ConstTensor y = cut_output(saved);
  if (!pass.weightless()) {
    batch_norm_sums(x, saved.statistics, y, dy, saved.sums, pass.arena);
  }
  std::vector<double> sums;
  if (saved.count > 0) {
    sums = saved.sums;
    if (options_.reducer != nullptr) options_.reducer->sum(sums);
    // the statistics do not depend on a weightless micro-batch
    if (pass.weightless()) sums.clear();
  }
  batch_norm_backward(x, saved.statistics, gain_->value, y, dy, sums, saved.count,
                      as_pixels(input_gradient, channels_), pass.arena);
  return input_gradient;
}

// Adds only this rank's term, because parameter gradients are summed over ranks later.
void BatchNorm::backward_weight(Pass& pass, const Saved& saved) const {
  const ArenaScope scope(pass.arena);
  const std::span<const double> sums = saved.sums;
  const auto add = [&](std::span<const double> numbers, const Tensor& gradient) {
    const Tensor rounded = pass.arena.take(value_type(gradient.dtype), 1, channels_);
    write(numbers, rounded);
    add_values(rounded, gradient);
  };
  const auto channels = static_cast<size_t>(channels_);
  add(sums.first(channels), bias_->gradient);
  add(sums.subspan(channels), gain_->gradient);
}

Tensor BatchNorm::backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  const Tensor input_gradient = backward_input(pass, output_gradient, saved);
  pass.finish([this, &pass, &saved] { backward_weight(pass, saved); });
  return input_gradient;
}

}  // namespace tutti::training
