// The sizes of a transformer, from which its parameters, operations and bytes follow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace tutti::training::planner {

// Attention by latent vectors (DeepSeek-V2): queries and keys of `rope` more values a head.
struct LatentAttention {
  int64_t query_rank = 0;  // 0: queries come from the hidden values
  int64_t kv_rank = 0;     // 0: there is no such attention
  int64_t rope = 0;
};

// Experts in place of feed-forward layers.
struct ExpertShape {
  int64_t count = 0;  // 0: there are none
  int64_t chosen = 0;
  int64_t hidden = 0;        // of one expert
  int64_t shared = 0;        // values of those that all tokens pass
  int64_t dense_layers = 0;  // the first layers, which have none
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
  int64_t positions = 0;  // that are learned; 0: none are
  bool gated = false;     // feed-forward layers of three matrices
  bool tied = true;       // the output layer is the embedding
  bool has_biases = true;
  LatentAttention latent;
  ExpertShape experts;

  int64_t sparse_layers() const { return experts.count > 0 ? layers - experts.dense_layers : 0; }
};

struct LayerParameters {
  int64_t attention = 0;
  int64_t feed_forward = 0;  // also shared experts and the router
  int64_t expert = 0;        // of all experts
  int64_t norms = 0;
  int64_t all() const { return attention + feed_forward + expert + norms; }
};
LayerParameters layer_parameters(const ModelShape& model, bool sparse);
// An embedding, of `padded` words.
int64_t embedding_parameters(const ModelShape& model, int64_t padded);
// Of the whole model, with its vocabulary as it is.
int64_t parameters(const ModelShape& model);
// Those by which a token is multiplied: without embeddings, and with the experts that it passes.
int64_t active_parameters(const ModelShape& model);

// Operations of a step's forward and backward for one sequence, attention over all pairs of tokens
// counted (72 b s L h^2 (1 + s / 6h + V / 12 L h) of a GPT; Narayanan et al., 2021).
double model_operations(const ModelShape& model, int64_t sequence);

// "gpt3-175b", "llama3-70b" ...
std::vector<std::string> model_names();
// A name, a config.json of Hugging Face, or a configuration of ours ({"model": ...}). Throws
// Error(invalid_argument) that names what is near.
ModelShape load_model_shape(const std::string& name_or_file);

}  // namespace tutti::training::planner
