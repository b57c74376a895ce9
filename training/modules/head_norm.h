// RMSNorm of attention's queries or keys before they are rotated: per head (Qwen3), or over all
// heads together (OLMoE; Henry et al.: Query-key normalization, 2020).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "training/core/parameters.h"
#include "training/core/pass.h"
#include "training/modules/sum_over_axis.h"

namespace tutti::training {

enum class HeadNormKind : uint8_t { none, each_head, all_heads };

struct HeadNormOptions {
  HeadNormKind kind = HeadNormKind::each_head;
  int64_t heads = 1;  // number of heads on all ranks together
  int64_t head_size = 1;
  double epsilon = 1e-6;
  Share own;            // the heads on this rank
  int first_slice = 0;  // deterministic mode: index of the first slice of `own` (core/slices.h)
  int slices = 1;       // number of slices of `own`
  int all_slices = 1;   // number of slices of all heads
  SumOverAxis sum;      // sums over the ranks that share the heads; null: this rank has all heads
};

class HeadNorm {
 public:
  struct Saved {
    Tensor input;  // rows x values of the heads on this rank; the caller owns its memory
    std::vector<double> factors;
    ConstTensor output_gradient;
  };

  // Adds parameter NAME.weight: the gain of one head, or of all heads.
  HeadNorm(ParameterTable& table, const std::string& name, const HeadNormOptions& options);

  // Normalizes saved.input and writes the result to `output`, which need not be contiguous.
  void forward(Pass& pass, Saved& saved, Tensor output) const;
  // Returns the input's gradient. The pass may defer the gain's gradient.
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const;

 private:
  bool of_each() const { return options_.kind == HeadNormKind::each_head; }
  int64_t group() const { return of_each() ? options_.head_size : own_width(); }
  int64_t own_width() const { return options_.own.count * options_.head_size; }
  std::vector<Share> columns() const;
  std::vector<double> sums(Pass& pass, ConstTensor x, ConstTensor y, ConstTensor gain) const;
  void backward_weight(Pass& pass, const Saved& saved) const;

  HeadNormOptions options_;
  const Parameter* gain_;
};

}  // namespace tutti::training
