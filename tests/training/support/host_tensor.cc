#include "tests/training/support/host_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "training/core/random.h"

namespace tutti::training::testing {
namespace {

template <typename T>
T load(const void* data) {
  T value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

}  // namespace

double get(ConstTensor tensor, int64_t row, int64_t col) {
  const std::byte* data = tensor.at(row, col);
  switch (tensor.dtype) {
    case DType::f64:
      return load<double>(data);
    case DType::f32:
      return static_cast<double>(load<float>(data));
    default:
      return static_cast<double>(to_float(tensor.dtype, load<uint16_t>(data)));
  }
}

void set(Tensor tensor, int64_t row, int64_t col, double value) {
  std::byte* data = tensor.at(row, col);
  const auto narrow = static_cast<float>(value);
  if (tensor.dtype == DType::f64) {
    std::memcpy(data, &value, sizeof value);
  } else if (tensor.dtype == DType::f32) {
    std::memcpy(data, &narrow, sizeof narrow);
  } else {
    const uint16_t bits = from_float(tensor.dtype, narrow);
    std::memcpy(data, &bits, sizeof bits);
  }
}

std::vector<double> doubles(ConstTensor tensor) {
  std::vector<double> values;
  for (int64_t row = 0; row < tensor.rows; ++row) {
    for (int64_t col = 0; col < tensor.cols; ++col) values.push_back(get(tensor, row, col));
  }
  return values;
}

void assign(Tensor tensor, std::span<const double> values) {
  for (int64_t i = 0; i < tensor.size(); ++i) {
    set(tensor, i / tensor.cols, i % tensor.cols, values[static_cast<size_t>(i)]);
  }
}

void randomize(Tensor tensor, uint64_t stream, double limit) {
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const uint64_t bits = random_bits(99, stream, static_cast<uint64_t>(i));
    set(tensor, i / tensor.cols, i % tensor.cols,
        limit * static_cast<double>(scale_symmetric(bits, 1.0f)));
  }
}

bool same_bits(ConstTensor a, ConstTensor b) {
  if (a.rows != b.rows || a.cols != b.cols || a.dtype != b.dtype) return false;
  const size_t bytes = static_cast<size_t>(a.cols) * size_of(a.dtype);
  for (int64_t row = 0; row < a.rows && bytes > 0; ++row) {
    if (std::memcmp(a.at(row, 0), b.at(row, 0), bytes) != 0) return false;
  }
  return true;
}

HostTensor::HostTensor(DType dtype, int64_t rows, int64_t cols, int64_t gap) {
  memory_.resize(static_cast<size_t>(rows * (cols + gap)) + 1);  // enough for any type
  view_ = {reinterpret_cast<std::byte*>(memory_.data()), dtype, rows, cols, cols + gap};
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = cols; col < cols + gap; ++col) set(view_, row, col, 1);
  }
}

bool HostTensor::gaps_untouched() const {
  for (int64_t row = 0; row < view_.rows; ++row) {
    for (int64_t col = view_.cols; col < view_.stride; ++col) {
      if (get(view_, row, col) != 1) return false;
    }
  }
  return true;
}

HostTensor random_tensor(DType dtype, int64_t rows, int64_t cols, uint64_t stream, double limit,
                         int64_t gap) {
  HostTensor tensor(dtype, rows, cols, gap);
  randomize(tensor, stream, limit);
  return tensor;
}

HostTensor rounded_to(DType dtype, ConstTensor source) {
  HostTensor tensor(dtype, source.rows, source.cols);
  assign(tensor, doubles(source));
  return tensor;
}

double relative_distance(std::span<const double> a, std::span<const double> b) {
  double distance = a.size() == b.size() ? 0 : INFINITY;
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    distance = difference <= distance ? distance : difference;  // written so that a NaN is kept
    largest = std::max(largest, std::abs(b[i]));
  }
  return distance == 0 ? 0 : distance / largest;
}

double relative_distance(ConstTensor a, ConstTensor b) {
  return relative_distance(doubles(a), doubles(b));
}

}  // namespace tutti::training::testing
