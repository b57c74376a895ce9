// Adafactor: an optimizer with adaptive rates from factored second moments.
#pragma once

#include <string>
#include <vector>

#include "training/optimizers/optimizer.h"
#include "training/optimizers/registry.h"

namespace tutti::training {

struct AdafactorOptions {
  double beta2_decay = 0.8;   // 0 or more
  double clip_threshold = 1;  // at least 1
  double least_rms = 1e-3;    // 0 or more
  double weight_decay = 0.0;  // each step multiplies values by 1 - learning_rate * weight_decay
};

// Shazeer, Stern: Adafactor: adaptive learning rates with sublinear memory cost, ICML 2018, as in
// torch.optim.Adafactor. For a matrix it keeps only the means of squared gradients over rows and
// over columns, rows + columns floats; for a vector the mean of each element's squares. At step t
//
//   r = lerp(r, mean of g^2 over the columns, t^-beta2_decay)
//   c = lerp(c, mean of g^2 over the rows, t^-beta2_decay)
//   v = r c / mean(r), u = g / sqrt(v), u = u / max(1, rms(u) / clip_threshold)
//   w = (1 - rate weight_decay) w - max(least_rms, rms(w)) min(rate, 1 / sqrt(t)) u
//
// with mean(r) >= e and v >= e^2, e = 2^-23. A tensor with more than two dimensions is a stack of
// matrices, whose dimensions are the tensor's last two.
//
// One owner computes a whole parameter and keeps its states; the other owners send it their
// gradients. The bits therefore do not depend on the sharding of the parameter.
class Adafactor : public Optimizer {
 public:
  // Creates the optimizer. Throws Error(invalid_argument) for options out of range.
  explicit Adafactor(const AdafactorOptions& options = {});
  std::vector<std::string> state_names() const override { return {}; }
  std::vector<WholeState> whole_states(const ParameterSpec& spec, int units) const override;
  bool is_elementwise() const override { return false; }
  bool takes_matrices() const override { return true; }

 private:
  void update(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
              NormReducer& reducer) override;

  AdafactorOptions options_;
};

OptimizerKind adafactor_kind();

}  // namespace tutti::training
