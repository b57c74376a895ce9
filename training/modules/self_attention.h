// Causal multi-head self-attention (Vaswani et al. 2017): queries, keys and values by one linear
// layer, blocked attention, and a linear layer on what the heads found.
#pragma once

#include <optional>
#include <string>

#include "training/kernels/attention.h"
#include "training/modules/linear.h"
#include "training/modules/rope.h"

namespace tutti::training {

struct SelfAttentionOptions {
  int64_t width = 0;
  int64_t heads = 1;
  int64_t context = 0;
  bool bias = true;
  bool rope = false;
  double output_deviation = 0.02;  // of c_proj's weights at the start
};

class SelfAttention {
 public:
  struct Saved {
    Linear::Saved in;
    Tensor qkv;
    Tensor attended;
    Tensor lse;
    Linear::Saved out;
  };

  // Parameters NAME.c_attn and NAME.c_proj. Throws Error(invalid_argument) where the heads do not
  // divide the width.
  SelfAttention(ParameterTable& table, const std::string& name,
                const SelfAttentionOptions& options);

  // In two parts, so that the input need not outlive the first one if backward gets it anew.
  // samples x context rows.
  void project(Pass& pass, ConstTensor input, Saved& saved, Tensor qkv) const;
  Tensor attend(Pass& pass, Saved& saved) const;
  int64_t projected_width() const { return in_.outputs(); }

  // Needs saved.in.input.
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const;

 private:
  AttentionShape shape(const Tensor& qkv) const;

  SelfAttentionOptions options_;
  Linear in_;
  Linear out_;
  std::optional<Rope> rope_;
};

}  // namespace tutti::training
