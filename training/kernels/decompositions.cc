#include "training/kernels/decompositions.h"

#include <cstddef>
#include <vector>

#include "base/error.h"
#include "base/text.h"

extern "C" {
void dsyevd_(const char* job, const char* triangle, const int* n, double* a, const int* stride,
             double* values, double* work, const int* work_size, int* int_work,
             const int* int_work_size, int* info);
void sgeqrf_(const int* rows, const int* cols, float* a, const int* stride, float* factors,
             float* work, const int* work_size, int* info);
void sorgqr_(const int* rows, const int* cols, const int* reflectors, float* a, const int* stride,
             const float* factors, float* work, const int* work_size, int* info);
}

namespace tutti::training {
namespace {

void check(const char* routine, int info) {
  if (info == 0) return;
  throw Error(ErrorCode::internal, cat("LAPACK's ", routine, " failed with ", info));
}

// Calls lapack(work, size) twice: to query the size, then with a workspace of that size.
template <typename Number, typename Call>
void with_work(const Call& lapack) {
  Number wanted = 0;
  lapack(&wanted, -1);
  std::vector<Number> work(static_cast<size_t>(wanted) + 1);
  lapack(work.data(), static_cast<int>(wanted));
}

// Computes to = from^T, both n x n.
template <typename From, typename To>
void transpose(const From* from, To* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) to[j * n + i] = static_cast<To>(from[i * n + j]);
  }
}

}  // namespace

void symmetric_eigenvectors(std::span<const float> matrix, int64_t n, std::span<float> vectors) {
  const auto order = static_cast<int>(n);
  std::vector<double> columns(matrix.begin(), matrix.end());
  std::vector<double> values(static_cast<size_t>(n));
  int int_size = 0;
  int info = 0;
  std::vector<int> int_work(1);
  with_work<double>([&](double* work, int size) {
    const int query = size < 0 ? -1 : int_size;
    dsyevd_("V", "L", &order, columns.data(), &order, values.data(), work, &size, int_work.data(),
            &query, &info);
    check("dsyevd", info);
    if (size < 0) int_work.resize(static_cast<size_t>(int_size = int_work[0]));
  });
  // LAPACK's columns are in ascending order of eigenvalues, so the order is reversed.
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      vectors[static_cast<size_t>(i * n + j)] =
          static_cast<float>(columns[static_cast<size_t>((n - 1 - j) * n + i)]);
    }
  }
}

void orthogonal_factor(std::span<float> matrix, int64_t n) {
  const auto order = static_cast<int>(n);
  std::vector<float> columns(matrix.size());
  std::vector<float> factors(static_cast<size_t>(n));
  int info = 0;
  transpose(matrix.data(), columns.data(), n);
  with_work<float>([&](float* work, int size) {
    sgeqrf_(&order, &order, columns.data(), &order, factors.data(), work, &size, &info);
    check("sgeqrf", info);
  });
  with_work<float>([&](float* work, int size) {
    sorgqr_(&order, &order, &order, columns.data(), &order, factors.data(), work, &size, &info);
    check("sorgqr", info);
  });
  transpose(columns.data(), matrix.data(), n);
}

}  // namespace tutti::training
