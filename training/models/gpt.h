// The GPT-2 family of language models (Radford et al. 2019), and its successors' parts by option:
// RMSNorm, rotary positions, SwiGLU, an output layer of its own.
//
//   tokens -> [embed: wte + wpe] -> [h.0] -> [h.1] ... -> [head: ln_f, wte^T, loss]
//   h.i:  x + attn(ln_1(x)),  then  x + mlp(ln_2(x))
#pragma once

#include <cstdint>

#include "training/model.h"
#include "training/models/registry.h"
#include "training/modules/mlp.h"
#include "training/modules/norm.h"

namespace tutti::training {

enum class Positions { learned, rope };

struct GptConfig {
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t width = 128;
  int64_t context = 128;     // tokens
  int64_t vocabulary = 256;  // kinds of tokens
  NormKind norm = NormKind::layer;
  MlpKind mlp = MlpKind::gelu;
  int64_t hidden = 0;  // of the feed-forward part; 0: 4 x width (SwiGLU: 8/3, to a multiple of 32)
  Positions positions = Positions::learned;
  bool tied = true;  // the output layer is the embedding
  bool bias = true;
  double dropout = 0;  // after the embedding, the attention and the feed-forward part
  // Normalizations and activations are computed anew in backward instead of kept (selective
  // recomputation, Korthikanti et al. 2022: what is cheap to compute and large to keep).
  bool selective_recomputation = false;
};

class Gpt : public Model {
 public:
  // Throws Error(invalid_argument) for sizes that make no sense.
  explicit Gpt(const GptConfig& config);

  const GptConfig& config() const { return config_; }
  double flops_per_sample() const override;
  Json configuration() const override;
  int64_t targets_per_sample() const override { return config_.context; }

 private:
  GptConfig config_;
};

ModelKind gpt2_kind();

}  // namespace tutti::training
