// The transformer's feed-forward network: Linear, GELU, Linear (GPT-2), or SwiGLU (Shazeer 2020).
// Hidden values are cut over the tensor axis; the results of forward and backward are each rank's
// term of a sum (linear.h).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "training/modules/linear.h"

namespace tutti::training {

enum class MlpKind { gelu, swiglu };

struct MlpOptions {
  int64_t width = 0;
  int64_t hidden = 0;
  MlpKind kind = MlpKind::gelu;
  bool bias = true;
  // Names of the layers: of c_fc and c_proj, or of gate, up and down. Empty: c_fc and c_proj
  // (SwiGLU: w_gate, w_up and w_down).
  std::vector<std::string> names = {};
  double output_deviation = 0.02;
  SoleOwner owner = {};  // LinearOptions::owner
};

// Weights of the rows' outputs, for callers that add up weighted outputs (models/mixture.h).
struct RowWeights {
  std::span<const double> weights;
  // Written by backward: the gradient of each weight; a term of it if tensor ranks share the hidden
  // values.
  std::span<double> gradients;
};

class Mlp {
 public:
  struct Saved {
    Linear::Saved in;  // c_fc, or the gate
    Linear::Saved up;  // SwiGLU only
    Tensor before;     // rows x hidden (SwiGLU: gate, then up)
    Linear::Saved out;

    void set_source(int source) { in.source = up.source = out.source = source; }
  };

  // Parameters NAME.LAYER.
  Mlp(ParameterTable& table, const std::string& name, const MlpOptions& options);

  // Forward in three steps, as in SelfAttention. `before` is rows x before_width().
  void project(Pass& pass, ConstTensor input, Saved& saved, Tensor before) const;
  // Computes the last layer's input from `before` and sets saved.out.input.
  void activate(Pass& pass, Saved& saved) const;
  // `output`: rows x width, of type_of_parts() (linear.h).
  void finish(Pass& pass, Saved& saved, Tensor output, RowsInTurn* turns = nullptr) const;
  int64_t before_width() const;

  void set_input(Saved& saved, ConstTensor input) const;
  // Requires the input and the activation.
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved,
                  RowsInTurn* turns = nullptr) const;
  // Likewise for weighted rows, in layers without biases; output_gradient is that of the sum of
  // weighted rows.
  Tensor backward(Pass& pass, ConstTensor output_gradient, const RowWeights& rows,
                  Saved& saved) const;

 private:
  void weigh_gradients(const Pass& pass, ConstTensor active, ConstTensor active_gradient,
                       std::span<double> gradients) const;
  Tensor backward_hidden(Pass& pass, Tensor active_gradient, Saved& saved, RowsInTurn* turns) const;

  MlpOptions options_;  // hidden: on this rank
  Linear in_;
  std::optional<Linear> up_;
  Linear out_;
};

}  // namespace tutti::training
