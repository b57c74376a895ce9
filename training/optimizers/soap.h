// SOAP: Adam in the eigenbases of Shampoo's preconditioners.
#pragma once

#include <string>
#include <vector>

#include "training/optimizers/adam_moments.h"
#include "training/optimizers/optimizer.h"
#include "training/optimizers/registry.h"

namespace tutti::training {

struct SoapOptions {
  double beta1 = 0.95;            // in [0, 1)
  double beta2 = 0.95;            // in [0, 1); also the decay of the preconditioners
  double epsilon = 1e-8;          // 0 or more; added to the square root, not under it
  double weight_decay = 0.0;      // decoupled
  int64_t frequency = 10;         // steps between updates of the bases
  int64_t max_dimension = 10000;  // larger dimensions of a tensor are not preconditioned
};

// Vyas et al.: SOAP: improving and stabilizing Shampoo using Adam, 2024, as in pytorch-optimizer's
// SOAP. For tensors of two or more dimensions, each dimension d has a preconditioner P_d and a
// basis Q_d of P_d's eigenvectors. P_d is a moving average of the gradient's products along d (for
// a matrix G: G G^T and G^T G). The first step only initializes P_d and Q_d, and changes no values.
// At step t + 1
//
//   m = lerp(m, g), v = lerp(v, (g in the bases)^2)
//   w = (w - rate sqrt(1 - beta2^t) / (1 - beta1^t) (m in the bases / (sqrt(v) + epsilon)) back)
//       (1 - rate weight_decay)
//
// and every `frequency` steps Q_d becomes the orthogonal factor of P_d Q_d, sorted by the
// eigenvalues that Q_d estimates; v is reordered with it.
//
// One owner computes a whole parameter and keeps its states; the other owners send it their
// gradients. The bits therefore do not depend on the sharding of the parameter.
class Soap : public Optimizer {
 public:
  // Creates the optimizer. Throws Error(invalid_argument) for options out of range.
  explicit Soap(const SoapOptions& options = {});
  std::vector<std::string> state_names() const override { return {}; }
  std::vector<WholeState> whole_states(const ParameterSpec& spec, int units) const override;
  bool is_elementwise() const override { return false; }
  bool takes_matrices() const override { return true; }

 private:
  void update(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
              NormReducer& reducer) override;

  SoapOptions options_;
};

OptimizerKind soap_kind();

}  // namespace tutti::training
