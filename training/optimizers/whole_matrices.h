// Computes with whole matrices that are sharded over owners: each matrix is assigned to one owner,
// which gathers its parts, computes, and sends the results back.
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
// Function that replaces a matrix by its result. The matrix has spec.shape.front() rows; all other
// dimensions form its columns. `parameter`: the parameter's index in the model's table.
using MatrixWork =
    std::function<void(int parameter, const ParameterSpec& spec, std::span<float> matrix)>;

// Selects all parameters that have elements, for optimizers that compute each parameter as a whole.
inline bool is_nonempty(const ParameterSpec& spec) { return spec.count() > 0; }
// Returns a view of the values as a matrix of `rows` rows.
inline Tensor matrix_of(std::span<float> values, int64_t rows) {
  return tensor_at(values.data(), DType::f32, rows, static_cast<int64_t>(values.size()) / rows);
}

// Throws Error(unsupported), naming the optimizer, for a parameter that is sharded over an axis of
// the mesh.
void check_whole(const ParameterSpec& spec, std::string_view optimizer);

// An array of one float per element of the pieces for which `is_matrix` returns true, one piece
// after the other.
class PieceValues {
 public:
  PieceValues(std::span<const OwnedPiece> pieces, const IsMatrix& is_matrix);
  std::span<float> all() { return values_; }
  // Returns the floats of a block of one of these pieces.
  float* of(const UpdateBlock& block);

 private:
  std::span<const OwnedPiece> pieces_;
  std::vector<int64_t> starts_;  // index of each piece's first float
  std::vector<float> values_;
};

// Returns the parameters that compute_whole() computes on this owner, ascending. Not collective.
std::vector<int> computed_here(std::span<const OwnedPiece> pieces, const IsMatrix& is_matrix,
                               const MatrixExchange* exchange);

// Returns the states of the whole parameters that `optimizer` computes on this owner, in a model of
// `units` units. Not collective. Throws as Optimizer::whole_states() does.
WholeStates whole_states_here(const Optimizer& optimizer, const std::vector<ParameterSpec>& specs,
                              int units, std::span<const OwnedPiece> pieces,
                              const MatrixExchange* exchange);

// Replaces `values` by the results of `work`. `values` has the values of all pieces for which
// `is_matrix` returns true, one piece after the other. Collective over the exchange's owners, which
// must pass the same parameters; without an exchange each piece is a whole matrix. The result
// depends neither on the sharding of a matrix nor on the owner that computes it.
void compute_whole(std::span<const OwnedPiece> pieces, const IsMatrix& is_matrix,
                   std::span<float> values, MatrixExchange* exchange, const MatrixWork& work);

}  // namespace tutti::training
