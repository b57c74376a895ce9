// The transformer's feed-forward part: Linear, GELU, Linear (GPT-2), or SwiGLU (Shazeer 2020). The
// hidden values are cut over the ranks along the tensor axis; what leaves forward and backward is
// each rank's part of a sum (linear.h).
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
  // Of the layers: c_fc and c_proj, or the gate, up and down; empty: c_fc and c_proj (SwiGLU:
  // w_gate, w_up and w_down).
  std::vector<std::string> names = {};
  double output_deviation = 0.02;
  SoleOwner owner = {};  // LinearOptions::owner
};

// Factors of the rows' outputs, for a caller that adds up weighted outputs (models/mixture.h).
struct RowWeights {
  std::span<const double> weights;
  // Written by backward: the gradient of each weight, of a part of the hidden values where tensor
  // ranks share them.
  std::span<double> gradients;
};

class Mlp {
 public:
  struct Saved {
    Linear::Saved in;  // c_fc, or the gate
    Linear::Saved up;  // SwiGLU only
    Tensor before;     // rows x hidden (SwiGLU: gate and up, one after the other)
    Linear::Saved out;

    void set_source(int source) { in.source = up.source = out.source = source; }
  };

  // Parameters NAME.LAYER.
  Mlp(ParameterTable& table, const std::string& name, const MlpOptions& options);

  // In three parts, as SelfAttention: `before` is rows x before_width().
  void project(Pass& pass, ConstTensor input, Saved& saved, Tensor before) const;
  // The activation that the last layer needs, from `before`: sets saved.out.input.
  void activate(Pass& pass, Saved& saved) const;
  // `output`: rows x width, of type_of_parts() (linear.h).
  void finish(Pass& pass, Saved& saved, Tensor output, RowsInTurn* turns = nullptr) const;
  int64_t before_width() const;

  void set_input(Saved& saved, ConstTensor input) const;
  // Needs the input and the activation.
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved,
                  RowsInTurn* turns = nullptr) const;
  // The same where rows have weights: of a layer without biases, and of the gradient of what the
  // weighted rows are added to.
  Tensor backward(Pass& pass, ConstTensor output_gradient, const RowWeights& rows,
                  Saved& saved) const;

 private:
  void weigh_gradients(const Pass& pass, ConstTensor active, ConstTensor active_gradient,
                       std::span<double> gradients) const;
  Tensor backward_hidden(Pass& pass, Tensor active_gradient, Saved& saved, RowsInTurn* turns) const;

  MlpOptions options_;  // with this rank's hidden values
  Linear in_;
  std::optional<Linear> up_;
  Linear out_;
};

}  // namespace tutti::training
