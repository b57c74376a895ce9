// Work on whole matrices of which owners have parts: each is dealt to one owner, computed there,
// and taken back.
#pragma once

#include <functional>
#include <span>

#include "training/optimizers/matrix_exchange.h"
#include "training/optimizers/optimizer.h"

namespace tutti::training {

// Replaces a matrix, spec.shape.front() x all else, by what is made of it.
using MatrixWork = std::function<void(const ParameterSpec& spec, std::span<float> matrix)>;

// `values` are those of the pieces for which `is_matrix` holds, one after the other; they become
// those of the results. Collective over the exchange's owners, with what the same parameters are;
// without an exchange each piece is a whole matrix. What a matrix becomes does not depend on how it
// is cut, nor on who computes it.
void compute_whole(std::span<const OwnedPiece> pieces,
                   const std::function<bool(const ParameterSpec& spec)>& is_matrix,
                   std::span<float> values, MatrixExchange* exchange, const MatrixWork& work);

}  // namespace tutti::training
