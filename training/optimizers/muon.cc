#include "training/optimizers/muon.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "training/kernels/gemm.h"
#include "training/optimizers/blocks.h"
#include "training/optimizers/optimizer_loops.h"
#include "training/optimizers/whole_matrices.h"

namespace tutti::training {
namespace {

bool is_hidden_matrix(const ParameterSpec& spec, int units) {
  return spec.shape.size() >= 2 && spec.unit > 0 && spec.unit < units - 1;
}

// Updates momentum u, and writes the direction d (see the header).
void accelerate(const UpdateBlock& block, float factor, float momentum, bool nesterov,
                float* direction) {
  float* const u = block.states[0];
  for (size_t i = 0; i < block.values.size(); ++i) {
    const float gradient = block.gradients[i] * factor;
    const float kept = momentum * u[i];
    u[i] = kept + gradient;
    const float ahead = momentum * u[i];
    direction[i] = nesterov ? gradient + ahead : u[i];
  }
}

// Replaces the matrix X in `values` by `scale` times an approximation of its orthogonal factor.
void orthogonalise(std::span<float> values, int64_t rows, int64_t iterations, double scale) {
  constexpr float kA = 3.4445F;
  constexpr float kB = -4.7750F;
  constexpr float kC = 2.0315F;
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  const auto shrink = static_cast<float>(1 / (std::sqrt(squares) + 1e-7));
  for (float& value : values) value *= shrink;

  const Tensor x = matrix_of(values, rows);
  const bool wide = x.rows <= x.cols;
  const int64_t side = std::min(x.rows, x.cols);
  const auto area = static_cast<size_t>(side * side);
  std::vector<float> a_values(area);
  std::vector<float> b_values(area);
  std::vector<float> product(values.size());
  const Tensor a = matrix_of(a_values, side);
  const Tensor b = matrix_of(b_values, side);
  const Tensor next = matrix_of(product, rows);
  for (int64_t i = 0; i < iterations; ++i) {
    // Uses the smaller of A = X X^T and B = X^T X: (b A + c A A) X = X (b B + c B B).
    gemm(x, wide ? Transpose::no : Transpose::yes, x, wide ? Transpose::yes : Transpose::no, a);
    gemm(a, Transpose::no, a, Transpose::no, b);
    for (size_t at = 0; at < area; ++at) {
      const float linear = kB * a_values[at];
      const float square = kC * b_values[at];
      b_values[at] = linear + square;
    }
    if (wide) {
      gemm(b, Transpose::no, x, Transpose::no, next);
    } else {
      gemm(x, Transpose::no, b, Transpose::no, next);
    }
    for (size_t at = 0; at < values.size(); ++at) {
      const float kept = kA * values[at];
      values[at] = kept + product[at];
    }
  }
  for (float& value : values) value *= static_cast<float>(scale);
}

}  // namespace

Muon::Muon(const MuonOptions& options) : options_(options) {
  check_moments(options.moments);
  check_option(options.momentum >= 0 && options.momentum < 1, "momentum", options.momentum,
               "in [0, 1)");
  check_option(options.weight_decay >= 0, "weight decay", options.weight_decay, "of at least 0");
  check_option(options.adam_scale >= 0, "Adam's scale", options.adam_scale, "of at least 0");
  check_option(options.iterations >= 1 && options.iterations <= 100, "number of iterations",
               static_cast<double>(options.iterations), "from 1 to 100");
}

void Muon::update(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
                  NormReducer& /*reducer*/) {
  check_option(options.units > 0, "number of units", options.units, "as the model has");
  for (const OwnedPiece& owned : pieces) {
    if (is_hidden_matrix(*owned.spec, options.units)) check_whole(*owned.spec, "Muon");
  }
  const auto is_matrix = [&](const ParameterSpec& spec) {
    return is_hidden_matrix(spec, options.units);
  };
  PieceValues directions(pieces, is_matrix);
  read_blocks(pieces, states, [&](const UpdateBlock& block) {
    if (!is_matrix(*block.owned.spec)) return;
    accelerate(block, static_cast<float>(options.gradient_factor),
               static_cast<float>(options_.momentum), options_.nesterov, directions.of(block));
  });
  compute_whole(pieces, is_matrix, directions.all(), options.matrices,
                [&](int, const ParameterSpec& spec, std::span<float> matrix) {
                  const int64_t rows = spec.shape.front();
                  const double ratio = static_cast<double>(rows * rows) /
                                       static_cast<double>(std::max<int64_t>(1, spec.count()));
                  orthogonalise(matrix, rows, options_.iterations, std::sqrt(std::max(1.0, ratio)));
                });

  const optimizer_loops::Loops& loops = optimizer_loops::loops();
  const optimizer_loops::MomentFactors factors = moment_factors(options_.moments, options);
  const double adam_rate = options.learning_rate * options_.adam_scale;
  const auto adam_step =
      static_cast<float>(adam_rate / bias_correction(options_.moments.beta1, options.step));
  update_blocks(pieces, states, options, [&](const UpdateBlock& block) {
    const ParameterSpec& spec = *block.owned.spec;
    const bool matrix = is_matrix(spec);
    const double rate = matrix ? options.learning_rate : adam_rate;
    const auto keep = static_cast<float>(spec.decays ? 1 - rate * options_.weight_decay : 1);
    if (!matrix) {
      loops.adamw(block.values.data(), block.gradients.data(), block.states[0], block.states[1],
                  block.size(), factors, keep, adam_step);
      return;
    }
    for (float& value : block.values) value *= keep;
    loops.descend(block.values.data(), directions.of(block), block.size(),
                  static_cast<float>(rate));
  });
}

OptimizerKind muon_kind() {
  return optimizer_kind<Muon, MuonOptions>(
      "muon",
      [](const ModelTraits& model) -> Json {
        return {{"lr", 0.02},
                {"adam_scale", model.adam_rate / 0.02},
                {"beta2", model.adam_beta2},
                {"weight_decay", model.weight_decay}};
      },
      [](Schema& schema, MuonOptions& options) {
        schema.add("momentum", options.momentum, "momentum coefficient");
        schema.add("nesterov", options.nesterov, "use Nesterov momentum");
        schema.add("iterations", options.iterations, "number of Newton-Schulz iterations");
        schema.add("adam_scale", options.adam_scale,
                   "learning rate of embeddings, output layer and vectors, as a fraction of --lr");
        describe(schema, options.moments);
        schema.add("weight_decay", options.weight_decay, "decoupled weight decay of matrices");
      });
}

}  // namespace tutti::training
