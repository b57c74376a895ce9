// Descent along orthogonalised momentum, for a model's hidden matrices.
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
  int64_t iterations = 5;     // Newton-Schulz steps
  double weight_decay = 0.0;  // decoupled, of all that decays
  // The other parameters are AdamW's, whose rate is this share of the learning rate.
  double adam_scale = 0.05;
  AdamMoments moments = {};
};

// Jordan et al.: Muon: an optimizer for hidden layers in neural networks, 2024. For a matrix of
// rows x cols (a convolution's: outputs x all else): u = momentum u + g, d = g + momentum u, or u
// without Nesterov; w = (1 - rate weight_decay) w - rate sqrt(max(1, rows / cols)) O(d), where
// O(d) takes d's singular values to about 1 by Newton-Schulz steps,
// X = a X + (b A + c A A) X with A = X X^T, from X = d / (|d| + 1e-7), in f32. The scale is that of
// Jordan's program. Embeddings and the output layer, which are the model's first and last unit, and
// vectors are AdamW's.
//
// A matrix is computed by one owner, which it is sent to: they are dealt out by what they cost. So
// its bits do not depend on who has which part.
class Muon : public Optimizer {
 public:
  // Throws Error(invalid_argument) for options out of range.
  explicit Muon(const MuonOptions& options = {});
  // The first is the momentum of a matrix; it has no use for the second.
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
