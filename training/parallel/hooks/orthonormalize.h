// Orthonormalizes a few long rows.
#pragma once

#include <vector>

#include "training/core/tensor.h"

namespace tutti::training {

// Makes the rows of `rows` (f32, contiguous, finite) orthonormal. Returns the indices of rows that
// depend linearly on earlier rows; those rows become zero. Runs the modified Gram-Schmidt process
// twice ("twice is enough": Giraud et al.: The loss of orthogonality in the Gram-Schmidt
// orthogonalization process, 2005). The bits depend on the values alone.
std::vector<int> orthonormalize(Tensor rows);

}  // namespace tutti::training
