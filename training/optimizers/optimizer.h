// Base class of optimizers: they update the pieces of the parameters that a rank owns.
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
  // Factor by which every gradient is multiplied: unscaling (loss_scaler.h) times clipping
  // (gradient_norm.h).
  double gradient_factor = 1;
  // Number of parameters of the whole model, equal on all owners. LAMB, LARS and Adafactor need it.
  int parameters = 0;
  // Number of units of the whole model. Muon uses AdamW for the first and the last one.
  int units = 0;
  // Exchanges parts of matrices; null if the owner has whole matrices. Muon, Adafactor and SOAP
  // need it.
  MatrixExchange* matrices = nullptr;
  // The states of the parameters that this owner computes, for optimizers that have whole_states().
  const WholeStates* whole = nullptr;
  // True: rounds bf16 values up or down at random, as a function of seed, step, the parameter's
  // name and the element. Values without masters need this, because rounding to nearest loses
  // updates below half a unit in the last place. Other types are rounded to nearest even.
  bool stochastic_rounding = false;
  uint64_t seed = 0;
};

// Selects the parameters to which weight decay (and the layer-wise rates of LAMB and LARS) applies:
// the parameters with ParameterSpec::decays, usually matrices; or all parameters, including biases
// and gains.
enum class DecayOn { as_specified, all };

inline bool decays(const ParameterSpec& spec, DecayOn on) {
  return on == DecayOn::all || spec.decays;
}

// Throws Error(invalid_argument), naming the option, its value and the allowed values, unless
// `good` is true.
void check_option(bool good, std::string_view option, double value, std::string_view allowed);

// Updates pieces of parameters. Not thread-safe.
class Optimizer {
 public:
  // Flat fp32 arrays, one for each of state_names(). The caller owns them and sets them to zero
  // initially. The state of a piece begins at its first_state(), in the parameter's format.
  using States = std::span<const std::span<float>>;

  virtual ~Optimizer() = default;
  // Returns the names of the states, as in PyTorch; at most two.
  virtual std::vector<std::string> state_names() const = 0;
  // Returns the storage format of a parameter's states. Throws Error(unsupported) for a parameter
  // that is sharded in a way that this optimizer does not support.
  virtual StateFormat state_format(const ParameterSpec& /*spec*/) const { return StateFormat::f32; }
  // Returns the alignment of pieces: each piece must begin at a multiple of this number of elements
  // in its parameter.
  virtual int64_t alignment() const { return kAlignment; }
  // Returns the states that the owner that computes a whole parameter (computed_here()) keeps for
  // it, in a model of `units` units. Throws as state_format() does.
  virtual std::vector<WholeState> whole_states(const ParameterSpec& /*spec*/, int /*units*/) const {
    return {};
  }
  // Returns true if an element's update depends on no other elements. Owners may then update at
  // different times, without communication.
  virtual bool is_elementwise() const { return true; }
  // Returns true if the optimizer computes with whole matrices, whose parts are gathered from the
  // owners.
  virtual bool takes_matrices() const { return false; }
  // Returns true if an update is linear in the gradient for a given state, so that the updates by
  // parts of a gradient add up to the update by the whole gradient.
  virtual bool adds_gradients() const { return false; }
  // Sets state_offset of each piece. Returns the number of floats in one state of all pieces.
  int64_t place_states(std::span<OwnedPiece> pieces) const;
  // Updates states, masters and values of all pieces. LAMB, LARS and Adafactor call `reducer` once;
  // Muon, Adafactor and SOAP call `options.matrices` twice. These calls are collective. Throws
  // Error(invalid_argument) before any change if sizes or types do not match.
  void step(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
            NormReducer& reducer);

 private:
  virtual void update(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
                      NormReducer& reducer) = 0;
};

}  // namespace tutti::training
