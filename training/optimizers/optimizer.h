// Base of optimizers: they update the pieces of the parameters that a rank owns.
//
// Every layout trains the same model: the bits of an element's new value depend neither on how its
// parameter is sharded (layout.h) nor on the instruction set. Elementwise arithmetic is in fp32
// without contraction; norms are exact sums (exact_sum.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "training/core/owned_piece.h"
#include "training/core/parameters.h"
#include "training/core/tensor.h"
#include "training/optimizers/matrix_exchange.h"
#include "training/optimizers/norm_reducer.h"
#include "training/optimizers/state_format.h"
#include "training/optimizers/whole_states.h"

namespace tutti::training {

struct StepOptions {
  int64_t step = 1;  // number of the update, from 1; used for Adam's bias correction
  double learning_rate = 0;
  // A factor for every gradient: unscaling (loss_scaler.h) times clipping (gradient_norm.h).
  double gradient_factor = 1;
  // Number of parameters of the whole model, equal on all owners. LAMB and LARS need it.
  int parameters = 0;
  // Number of units of the whole model: Muon leaves the first and the last one to AdamW.
  int units = 0;
  // For owners that have parts of matrices; null: they have whole matrices. Muon needs it.
  MatrixExchange* matrices = nullptr;
  // The states of parameters that this owner computes, for optimizers that have whole_states().
  const WholeStates* whole = nullptr;
  // Rounds bf16 values up or down at random, as a function of seed, step, the parameter's name and
  // the element. Without masters this should be on: rounding to nearest loses updates below half a
  // unit in the last place. Other types are rounded to nearest even.
  bool stochastic_rounding = false;
  uint64_t seed = 0;
};

// The parameters with weight decay (and layer-wise rates of LAMB and LARS): those whose
// specification says so, usually matrices; or all, biases and gains included.
enum class DecayOn { as_specified, all };

inline bool decays(const ParameterSpec& spec, DecayOn on) {
  return on == DecayOn::all || spec.decays;
}

// Throws Error(invalid_argument), naming the option, unless `good`.
void check_option(bool good, std::string_view option, double value, std::string_view allowed);

// Not thread-safe.
class Optimizer {
 public:
  // Flat fp32 arrays, owned by the caller and initially zero, one for each of state_names(): the
  // state of a piece begins at its first_state(), in the parameter's format.
  using States = std::span<const std::span<float>>;

  virtual ~Optimizer() = default;
  // Named as in PyTorch; at most two.
  virtual std::vector<std::string> state_names() const = 0;
  // Storage format of a parameter's states. Throws Error(unsupported) for a parameter that is cut
  // in a way that this optimizer does not support.
  virtual StateFormat state_format(const ParameterSpec& /*spec*/) const { return StateFormat::f32; }
  // In elements: the end of a piece must not cut an aligned block of this size of a parameter.
  virtual int64_t alignment() const { return kAlignment; }
  // The states that the owner who computes a parameter (computed_here()) keeps for the whole of it,
  // in a model of `units` units. Throws as state_format() does.
  virtual std::vector<WholeState> whole_states(const ParameterSpec& /*spec*/, int /*units*/) const {
    return {};
  }
  // True if an element's update depends on no other elements: owners may then update at different
  // times, without communication.
  virtual bool is_elementwise() const { return true; }
  // True if it works on whole matrices, whose parts are gathered from the owners.
  virtual bool takes_matrices() const { return false; }
  // True if an update is linear in the gradient, apart from the state: the sum of updates by parts
  // of a gradient is then the update by the whole gradient.
  virtual bool adds_gradients() const { return false; }
  // Sets state_offset of each piece. Returns the number of floats in one state of all pieces.
  int64_t place_states(std::span<OwnedPiece> pieces) const;
  // Updates states, masters and values of all pieces. LAMB and LARS call `reducer` once, Muon calls
  // `options.matrices` twice: these calls are collective. Throws Error(invalid_argument) before any
  // change if sizes or types do not match.
  void step(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
            NormReducer& reducer);

 private:
  virtual void update(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
                      NormReducer& reducer) = 0;
};

}  // namespace tutti::training
