// The transformer's feed-forward network: Linear, GELU, Linear (GPT-2), or SwiGLU (Shazeer 2020).
// Hidden values are sharded over the tensor axis; forward and backward return each rank's term of a
// sum (linear.h).
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
  // Names of the layers: two names (GPT-2's c_fc and c_proj), or with SwiGLU three (gate, up and
  // down). Empty: c_fc and c_proj, or with SwiGLU w_gate, w_up and w_down.
  std::vector<std::string> names = {};
  double output_deviation = 0.02;
  SoleOwner owner = {};  // see LinearOptions::owner
};

// Weights by which the rows of the output are multiplied, for callers that sum weighted outputs
// (models/mixture.h).
struct RowWeights {
  std::span<const double> weights;
  // Backward writes the gradient of each weight here. If tensor-parallel ranks share the hidden
  // values, it writes only this rank's term of the gradient.
  std::span<double> gradients;
};

class Mlp {
 public:
  struct Saved {
    Linear::Saved in;  // c_fc, or the gate of SwiGLU
    Linear::Saved up;  // used by SwiGLU only
    Tensor before;     // rows x hidden (SwiGLU: gate, then up)
    Linear::Saved out;

    void set_source(int source) { in.source = up.source = out.source = source; }
  };

  // Adds parameters NAME.LAYER.
  Mlp(ParameterTable& table, const std::string& name, const MlpOptions& options);

  // Forward has three steps, as in SelfAttention. project() runs the first step: it writes
  // `before`, which is rows x before_width().
  void project(Pass& pass, ConstTensor input, Saved& saved, Tensor before) const;
  // Computes the last layer's input from `before` and sets saved.out.input.
  void activate(Pass& pass, Saved& saved) const;
  // Computes `output`: rows x width, of type_of_parts() (linear.h).
  void finish(Pass& pass, Saved& saved, Tensor output, RowsInTurn* turns = nullptr) const;
  int64_t before_width() const;

  void set_input(Saved& saved, ConstTensor input) const;
  // Returns the input's gradient. The input and the result of activate() must be available.
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved,
                  RowsInTurn* turns = nullptr) const;
  // Runs backward for weighted rows, in layers without biases. `output_gradient` is the gradient of
  // the sum of the weighted rows.
  Tensor backward(Pass& pass, ConstTensor output_gradient, const RowWeights& rows,
                  Saved& saved) const;

 private:
  void weigh_gradients(const Pass& pass, ConstTensor active, ConstTensor active_gradient,
                       std::span<double> gradients) const;
  Tensor backward_hidden(Pass& pass, Tensor active_gradient, Saved& saved, RowsInTurn* turns) const;

  MlpOptions options_;  // `hidden` is the count of hidden values on this rank
  Linear in_;
  std::optional<Linear> up_;
  Linear out_;
};

}  // namespace tutti::training
