#include "training/parallel/hooks/orthonormalize.h"

#include <cmath>
#include <cstddef>

namespace tutti::training {
namespace {

// A row is dependent if its remainder is at most this fraction of its length. The remainder of a
// dependent row is a rounding error of a few units of 2^-24.
constexpr double kDependent = 1e-6;

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

// Computes row -= (row . other) other.
void project_out(std::span<const float> other, std::span<float> row) {
  const double part = dot(row, other);
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(row[i] - part * other[i]);
}

}  // namespace

std::vector<int> orthonormalize(Tensor rows) {
  const auto row_of = [&](int64_t i) { return rows.row_range(i, 1).values<float>(); };
  std::vector<int> dependent;
  for (int64_t i = 0; i < rows.rows; ++i) {
    const std::span<float> row = row_of(i);
    const double length = std::sqrt(dot(row, row));
    for (int time = 0; time < 2; ++time) {
      for (int64_t before = 0; before < i; ++before) project_out(row_of(before), row);
    }
    const double left = std::sqrt(dot(row, row));
    const bool independent = left > kDependent * length;
    const double factor = independent ? 1 / left : 0;
    for (float& value : row) value = static_cast<float>(value * factor);
    if (!independent) dependent.push_back(static_cast<int>(i));
  }
  return dependent;
}

}  // namespace tutti::training
