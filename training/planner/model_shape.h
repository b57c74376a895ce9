// The sizes of a transformer, from which its parameters, operations and bytes follow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace tutti::training::planner {

// Multi-head latent attention (DeepSeek-V2). Queries and keys have `rope` additional values per
// head.
struct LatentAttention {
  int64_t query_rank = 0;  // 0: queries are projected from hidden values
  int64_t kv_rank = 0;     // 0: no latent attention
  int64_t rope = 0;
};

// Mixture-of-experts layers.
struct ExpertShape {
  int64_t count = 0;  // number of experts; 0: none
  int64_t chosen = 0;
  int64_t hidden = 0;        // hidden size of an expert
  int64_t shared = 0;        // hidden size of all shared experts
  int64_t dense_layers = 0;  // number of layers without experts, which come first
};

struct ModelShape {
  std::string name;
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t feed_forward = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_width = 0;
  int64_t vocabulary = 0;
  int64_t positions = 0;  // number of learned position embeddings; 0: none
  bool gated = false;     // true: three feed-forward matrices (SwiGLU)
  bool tied = true;       // true: the output layer shares the embedding's weight
  bool has_biases = true;
  LatentAttention latent;
  ExpertShape experts;

  int64_t sparse_layers() const { return experts.count > 0 ? layers - experts.dense_layers : 0; }
};

struct LayerParameters {
  int64_t attention = 0;
  // parameters of a feed-forward network, including shared experts and the router
  int64_t feed_forward = 0;
  int64_t expert = 0;  // parameters of all routed experts
  int64_t norms = 0;
  int64_t all() const { return attention + feed_forward + expert + norms; }
};
LayerParameters layer_parameters(const ModelShape& model, bool sparse);
// Returns the number of parameters of the whole model, with the vocabulary unpadded.
int64_t parameters(const ModelShape& model);
// Returns the number of parameters with which a token is multiplied: without embeddings, and only
// those of the chosen experts.
int64_t active_parameters(const ModelShape& model);

// Returns the FLOPs of forward and backward for one sequence, with unmasked attention (72 b s L h^2
// (1 + s / 6h + V / 12 L h) of a GPT; Narayanan et al., 2021).
double model_operations(const ModelShape& model, int64_t sequence);

// Throws Error(invalid_argument) for sizes below 1, and for more than 1e18 parameters.
void require_possible(const ModelShape& model);

// Returns the names of known models: "gpt3-175b", "llama3-70b" ...
std::vector<std::string> model_names();
// Loads a model by name, from a Hugging Face config.json, or from a configuration of `tutti train`
// ({"model": ...}). If there is no such model, throws Error(invalid_argument), which suggests
// similar names.
ModelShape load_model_shape(const std::string& name_or_file);

}  // namespace tutti::training::planner
