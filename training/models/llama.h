// The Llama family of language models. Llama (Touvron et al. 2023; Llama 3: Dubey et al. 2024) has
// RMSNorm, rotary positions, grouped-query attention and SwiGLU. With a window it is Mistral (Jiang
// et al. 2023). Models with experts instead of one feed-forward network are Mixtral (Jiang et al.
// 2024), Qwen2-MoE (Yang et al. 2024), Qwen3-MoE (2025), OLMoE (Muennighoff et al. 2024), and
// `switch`: the routing of Switch Transformers (Fedus et al. 2021) in blocks of Llama, not T5.
// Parameters have the names of Hugging Face's LlamaForCausalLM, MixtralForCausalLM ..., without the
// prefix "model.".
#pragma once

#include <cstdint>
#include <vector>

#include "training/models/decoder.h"
#include "training/models/registry.h"

namespace tutti::training {

// Kinds that differ in their experts and parameter names.
enum class LlamaFamily : uint8_t {
  llama,  // has no experts
  mixtral,
  qwen2moe,
  qwen3moe,
  olmoe,
  switch_transformer,
};

struct LlamaConfig {
  LlamaFamily family = LlamaFamily::llama;
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t kv_heads = 0;   // number of key and value heads; 0: as many as heads
  int64_t head_size = 0;  // values per head; 0: width / heads
  int64_t width = 128;
  // width of the feed-forward network; 0: 8/3 x width, rounded up to a multiple of 32
  int64_t hidden = 0;
  int64_t context = 128;
  int64_t max_context = 0;  // maximum context that the model supports; 0: `context`
  // number of tokens to which a token attends: itself and the tokens just before it; 0: itself and
  // all tokens before it
  int64_t window = 0;
  int64_t vocabulary = 256;
  double norm_epsilon = 1e-5;
  RopeOptions rope;
  bool tied = true;
  bool attention_bias = false;
  bool mlp_bias = false;
  double dropout = 0;
  // router.experts is 0 if one feed-forward network processes all tokens
  RouterOptions router;
  int64_t shared_hidden = 0;  // width of the shared experts together; 0: there are none
  bool shared_gate = false;
  ComputeOptions compute;
};

class Llama : public Decoder {
 public:
  // Creates the part of the rank at `place` (decoder.h). Throws Error(invalid_argument) for invalid
  // sizes.
  explicit Llama(const LlamaConfig& config, const MeshPlace& place = {});

  Json configuration() const override;

 private:
  LlamaConfig config_;
};

// Returns the kinds llama, mixtral ...
std::vector<ModelKind> llama_kinds();

}  // namespace tutti::training
