// The GPT-2 family of language models (Radford et al. 2019), with optional parts of its successors:
// RMSNorm, rotary positions, SwiGLU, a separate output layer.
//
//   tokens -> [embed: wte + wpe] -> [h.0] -> [h.1] ... -> [head: ln_f, wte^T, loss]
//   h.i:  x + attn(ln_1(x)),  then  x + mlp(ln_2(x))
#pragma once

#include <cstdint>

#include "training/models/decoder.h"
#include "training/models/registry.h"

namespace tutti::training {

enum class Positions { learned, rope };

struct GptConfig {
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t width = 128;
  int64_t context = 128;     // tokens per sample
  int64_t max_context = 0;   // number of positions; 0: `context`
  int64_t vocabulary = 256;  // number of tokens
  NormKind norm = NormKind::layer;
  double norm_epsilon = 1e-5;
  MlpKind mlp = MlpKind::gelu;
  int64_t hidden = 0;  // feed-forward width; 0: 4 x width (SwiGLU: 8/3, to a multiple of 32)
  Positions positions = Positions::learned;
  bool tied = true;  // the output layer shares the embedding's weight
  bool bias = true;
  double dropout = 0;
  ComputeOptions compute;
};

class Gpt : public Decoder {
 public:
  // For the rank at this place of a mesh (decoder.h). Throws Error(invalid_argument) for invalid
  // sizes.
  explicit Gpt(const GptConfig& config, const MeshPlace& place = {});

  Json configuration() const override;

 private:
  GptConfig config_;
};

ModelKind gpt2_kind();

}  // namespace tutti::training
