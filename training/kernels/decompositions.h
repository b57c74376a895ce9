// Decompositions of square row-major matrices by LAPACK. A failure of the library throws
// Error(internal). Thread-safe; each call computes on the calling thread only.
#pragma once

#include <cstdint>
#include <span>

namespace tutti::training {

// Writes the eigenvectors of a symmetric n x n matrix as the columns of `vectors`, in descending
// order of eigenvalues. Computes in double.
void symmetric_eigenvectors(std::span<const float> matrix, int64_t n, std::span<float> vectors);

// Replaces an n x n matrix by the orthogonal factor of its QR decomposition.
void orthogonal_factor(std::span<float> matrix, int64_t n);

}  // namespace tutti::training
