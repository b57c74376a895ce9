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
  int64_t context = 128;     // number of tokens per sample
  int64_t max_context = 0;   // number of positions in the table; 0: `context`
  int64_t vocabulary = 256;  // number of different tokens
  NormKind norm = NormKind::layer;
  double norm_epsilon = 1e-5;
  MlpKind mlp = MlpKind::gelu;
  // width of the feed-forward network; 0: 4 x width, or with SwiGLU 8/3 x width, rounded up to a
  // multiple of 32
  int64_t hidden = 0;
  Positions positions = Positions::learned;
  bool tied = true;  // true: the output layer shares the embedding's weight
  bool bias = true;
  double dropout = 0;
  ComputeOptions compute;
};

class Gpt : public Decoder {
 public:
  // Creates the part of the rank at `place` (decoder.h). Throws Error(invalid_argument) for invalid
  // sizes.
  explicit Gpt(const GptConfig& config, const MeshPlace& place = {});

  Json configuration() const override;

 private:
  GptConfig config_;
};

ModelKind gpt2_kind();

}  // namespace tutti::training
