// Factors of square matrices, by LAPACK. Matrices are row-major. A failure of the library is an
// Error(internal). Safe from any thread; each call computes on the calling one.
#pragma once

#include <cstdint>
#include <span>

namespace tutti::training {

// Writes the eigenvectors of a symmetric n x n matrix as the columns of `vectors`, that of the
// largest eigenvalue first. Computed in double.
void symmetric_eigenvectors(std::span<const float> matrix, int64_t n, std::span<float> vectors);

// Replaces an n x n matrix by the orthogonal factor of its QR decomposition.
void orthogonal_factor(std::span<float> matrix, int64_t n);

}  // namespace tutti::training
