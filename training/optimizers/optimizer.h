// What optimizers have in common: they update the pieces of the parameters that a rank owns.
//
// Every layout trains the same model: an element's new value has the same bits however its
// parameter is cut among owners (layout.h), on every instruction set. Elementwise arithmetic is
// done in fp32 without contraction, norms are exact sums (exact_sum.h).
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
  int64_t step = 1;  // of the updates that were made, from 1: Adam corrects its moments' bias by it
  double learning_rate = 0;
  // Every gradient is multiplied by it: unscaling (loss_scaler.h) times clipping (gradient_norm.h).
  double gradient_factor = 1;
  // Parameters of the whole model: owners must agree on it. LAMB and LARS need it.
  int parameters = 0;
  // Units of the whole model: Muon leaves the first and the last one to AdamW.
  int units = 0;
  // Where owners have parts of matrices; none: they have all of them. Muon needs it.
  MatrixExchange* matrices = nullptr;
  // The states of the parameters that this owner computes, of an optimizer that has whole_states().
  const WholeStates* whole = nullptr;
  // Values in bf16 are rounded up or down by chance, as a function of seed, step, the parameter's
  // name and the element. Without masters this should be on: rounding to nearest loses updates
  // below half a unit of the last place. Other types are rounded to nearest even.
  bool stochastic_rounding = false;
  uint64_t seed = 0;
};

// Which parameters weight decay (and the layer-wise rates of LAMB and LARS) are for: those whose
// spec says so, usually matrices, or biases and gains too.
enum class DecayOn { as_specified, all };

inline bool decays(const ParameterSpec& spec, DecayOn on) {
  return on == DecayOn::all || spec.decays;
}

// Throws Error(invalid_argument), naming the option, unless `good`.
void check_option(bool good, std::string_view option, double value, std::string_view allowed);

// Not thread-safe.
class Optimizer {
 public:
  // Flat fp32 arrays, zero at the start and owned by the caller, one for each of state_names():
  // the state of a piece is at its first_state(), in the parameter's format.
  using States = std::span<const std::span<float>>;

  virtual ~Optimizer() = default;
  // As PyTorch calls them; two at most.
  virtual std::vector<std::string> state_names() const = 0;
  // How the states of a parameter are stored. Throws Error(unsupported) for one that is cut over an
  // axis of the mesh at places where this optimizer does not work.
  virtual StateFormat state_format(const ParameterSpec& /*spec*/) const { return StateFormat::f32; }
  // Elements: no aligned block of so many of a parameter may be cut by the end of a piece.
  virtual int64_t alignment() const { return kAlignment; }
  // The states that the owner who computes a parameter (computed_here()) has of it as a whole, in a
  // model of so many units. Throws as state_format() does.
  virtual std::vector<WholeState> whole_states(const ParameterSpec& /*spec*/, int /*units*/) const {
    return {};
  }
  // Whether an element's update needs nothing of others: then owners may update at different times,
  // without a word to each other.
  virtual bool is_elementwise() const { return true; }
  // True if it works on whole matrices, whose parts come together where owners share them out.
  virtual bool takes_matrices() const { return false; }
  // Whether an update is the gradient times the learning rate, and what earlier ones left: sums of
  // updates by parts of a gradient are then the update by all of it.
  virtual bool adds_gradients() const { return false; }
  // Sets where the states of each piece are. Returns the floats that one state of all of them has.
  int64_t place_states(std::span<OwnedPiece> pieces) const;
  // Updates states, masters and values of all pieces. LAMB and LARS call `reducer` once, Muon
  // `options.matrices` twice: collective calls. Throws Error(invalid_argument) before anything has
  // changed if sizes or types do not fit together.
  void step(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
            NormReducer& reducer);

 private:
  virtual void update(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
                      NormReducer& reducer) = 0;
};

}  // namespace tutti::training
