// Muon: SGD with orthogonalised momentum, for a model's hidden matrices.
#pragma once

#include <string>
#include <vector>

#include "training/optimizers/adam_moments.h"
#include "training/optimizers/optimizer.h"
#include "training/optimizers/registry.h"

namespace tutti::training {

struct MuonOptions {
  double momentum = 0.95;  // in [0, 1)
  bool nesterov = true;
  int64_t iterations = 5;     // number of Newton-Schulz steps
  double weight_decay = 0.0;  // decoupled; applies to all parameters with ParameterSpec::decays
  // Fraction of the learning rate with which AdamW updates the other parameters.
  double adam_scale = 0.05;
  AdamMoments moments = {};
};

// Jordan et al.: Muon: an optimizer for hidden layers in neural networks, 2024. For a matrix of
// rows x cols (a convolution's: outputs x all other dimensions): u = momentum u + g, d = g +
// momentum u, or d = u without Nesterov; w = (1 - rate weight_decay) w - rate sqrt(max(1, rows /
// cols)) O(d). O(d) brings d's singular values to about 1 by Newton-Schulz steps, X = a X + (b A +
// c A A) X with A = X X^T, starting from X = d / (|d| + 1e-7), in f32. The factor sqrt(max(1, rows
// / cols)) comes from Jordan's program. AdamW updates all vectors, and all parameters of the
// model's first and last unit (embeddings and output layer).
//
// One owner computes a whole matrix, and the other owners send it their parts; matrices are
// distributed over owners by cost. The bits therefore do not depend on the sharding of the
// parameter.
class Muon : public Optimizer {
 public:
  // Creates the optimizer. Throws Error(invalid_argument) for options out of range.
  explicit Muon(const MuonOptions& options = {});
  // Returns the names of the states. The first is the momentum of a matrix; matrices do not use the
  // second.
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  bool is_elementwise() const override { return false; }
  bool takes_matrices() const override { return true; }

 private:
  void update(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
              NormReducer& reducer) override;

  MuonOptions options_;
};

OptimizerKind muon_kind();

}  // namespace tutti::training
