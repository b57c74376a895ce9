// Decoder-only language models (Vaswani et al. 2017; pre-normalization) as a stack of blocks over
// an embedding, with configurable parts and parameter names:
//
//   tokens -> [embed] -> [block 0] -> [block 1] ... -> [head: norm, output layer, loss]
//   block:  x + attention(norm(x)),  then  x + mlp(norm(x))
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "training/core/model.h"
#include "training/models/compute_options.h"
#include "training/models/mixture.h"
#include "training/models/registry.h"
#include "training/modules/mlp.h"
#include "training/modules/norm.h"
#include "training/modules/self_attention.h"

namespace tutti::training {

struct DecoderNames {
  std::string embedding;
  std::string positions;
  std::string block;  // followed by its number
  std::string attention_norm;
  std::string attention;
  std::string mlp_norm;
  std::string mlp;
  std::string last_norm;
  std::string output = "lm_head";
};

struct DecoderOptions {
  DecoderNames names;
  int64_t layers = 0;
  int64_t width = 0;
  int64_t vocabulary = 0;   // number of tokens
  int64_t context = 0;      // tokens per sample: the maximum of a pass
  int64_t max_context = 0;  // maximum value of `context`
  bool learned_positions = false;
  NormKind norm = NormKind::layer;
  double norm_epsilon = 1e-5;
  std::optional<RopeOptions> rope;
  SelfAttentionOptions attention;  // width, rotation and deviation are derived
  MlpOptions mlp;                  // width and deviation are derived
  MixtureOptions mixture;          // its experts are described by `mlp`
  bool tied = true;                // the output layer shares the embedding's weight
  double dropout = 0;              // after embedding, attention and feed-forward network
  ComputeOptions compute;
};

// Formulas for the bytes that a block keeps between forward and backward.
struct BlockActivations {
  double kept = 0;  // in this model, without recomputation
  // In Megatron-LM: s b h (10 + 24/t + 5 a s / (h t)), with shared rows s b h (34 + 5 a s / h) / t,
  // in 16 bits (Korthikanti et al. 2022, table 2): it keeps dropout masks and the softmax's scores.
  double megatron = 0;
};

class Decoder : public Model {
 public:
  // For the rank at this place of a mesh: the vocabulary, attention's heads and the feed-forward
  // network's hidden values are cut over the tensor axis. Throws Error(invalid_argument) for
  // invalid sizes.
  Decoder(DecoderOptions options, const MeshPlace& place);

  int64_t context() const { return options_.context; }
  int64_t max_context() const { return options_.max_context; }
  int64_t vocabulary() const { return options_.vocabulary; }
  BlockActivations block_activations(int64_t samples, DType dtype) const;
  double flops_per_sample() const override;
  int64_t targets_per_sample() const override { return options_.context; }
  int64_t logits_at_once(const MicroBatch& batch, bool split) const override;
  int64_t message_bytes(const MicroBatch& batch, DType activations) const override;
  bool takes_parts_of_samples() const override { return true; }
  int64_t attention_window() const override { return options_.attention.window; }
  int slices() const override { return options_.compute.slices; }
  ExpertLoad* expert_load() override { return load_.get(); }
  // The biases for loss-free balancing of experts.
  std::vector<NamedBuffer> buffers() override;

 private:
  double used_share(const ParameterSpec& spec) const;

  DecoderOptions options_;
  std::shared_ptr<ExpertLoad> load_;  // counts the experts' tokens; null without experts
};

// Defines a kind of decoder, in the decoder's file; creates `Made` from its config.
template <typename Made, typename Config>
ModelKind decoder_kind(const std::string& meaning, const Described<Config>& described) {
  return model_kind<Config>(
      meaning,
      {.inputs = Inputs::windows,
       .batch = 32,
       .micro_batch = 8,
       .adam_beta2 = 0.95,
       .weight_decay = 0.1,
       .clip = 1},
      described, [](const Config& config, const ModelContext& context) -> std::unique_ptr<Model> {
        Config complete = config;
        complete.compute = context.compute;
        return std::make_unique<Made>(complete, context.place);
      });
}

}  // namespace tutti::training
