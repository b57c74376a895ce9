// Work on whole matrices of which owners have parts: each is dealt to one owner, computed there,
// and taken back.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "training/optimizers/blocks.h"
#include "training/optimizers/matrix_exchange.h"
#include "training/optimizers/optimizer.h"
#include "training/optimizers/whole_states.h"

namespace tutti::training {

using IsMatrix = std::function<bool(const ParameterSpec& spec)>;
// Replaces a matrix, spec.shape.front() x all else, by what is made of it. `parameter` is its index
// in the model's table.
using MatrixWork =
    std::function<void(int parameter, const ParameterSpec& spec, std::span<float> matrix)>;

// All parameters that have elements, for optimizers that compute each as a whole.
inline bool is_nonempty(const ParameterSpec& spec) { return spec.count() > 0; }
// A view of the values as a matrix of so many rows.
inline Tensor matrix_of(std::span<float> values, int64_t rows) {
  return tensor_at(values.data(), DType::f32, rows, static_cast<int64_t>(values.size()) / rows);
}

// Throws Error(unsupported), naming the optimizer, for a parameter that is cut over an axis of the
// mesh.
void check_whole(const ParameterSpec& spec, std::string_view optimizer);

// A float for each element of the pieces for which `is_matrix` holds, one piece after the other.
class PieceValues {
 public:
  PieceValues(std::span<const OwnedPiece> pieces, const IsMatrix& is_matrix);
  std::span<float> all() { return values_; }
  // Those of a block of one of these pieces.
  float* of(const UpdateBlock& block);

 private:
  std::span<const OwnedPiece> pieces_;
  std::vector<int64_t> starts_;  // of each piece
  std::vector<float> values_;
};

// The parameters that compute_whole() computes on this owner, ascending. Not collective.
std::vector<int> computed_here(std::span<const OwnedPiece> pieces, const IsMatrix& is_matrix,
                               const MatrixExchange* exchange);

// The states of the parameters that `optimizer`, in a model of so many units, computes on this
// owner as wholes. Not collective. Throws as Optimizer::whole_states() does.
WholeStates whole_states_here(const Optimizer& optimizer, const std::vector<ParameterSpec>& specs,
                              int units, std::span<const OwnedPiece> pieces,
                              const MatrixExchange* exchange);

// `values` are those of the pieces for which `is_matrix` holds, one after the other; they become
// those of the results. Collective over the exchange's owners, with what the same parameters are;
// without an exchange each piece is a whole matrix. What a matrix becomes does not depend on how it
// is cut, nor on who computes it.
void compute_whole(std::span<const OwnedPiece> pieces, const IsMatrix& is_matrix,
                   std::span<float> values, MatrixExchange* exchange, const MatrixWork& work);

}  // namespace tutti::training
