// Decoder-only language models (Vaswani et al. 2017; pre-normalization): an embedding, a stack of
// blocks and an output layer. Parts and parameter names are configurable:
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
  std::string block;  // prefix of a block's name; the block's index follows
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
  int64_t context = 0;      // maximum number of tokens per sample in a pass
  int64_t max_context = 0;  // maximum that `context` may have
  bool learned_positions = false;
  NormKind norm = NormKind::layer;
  double norm_epsilon = 1e-5;
  std::optional<RopeOptions> rope;
  SelfAttentionOptions attention;  // the decoder sets its width, rotation and deviation
  MlpOptions mlp;                  // the decoder sets its width and deviation
  MixtureOptions mixture;          // `mlp` describes its experts
  bool tied = true;                // true: the output layer shares the embedding's weight
  double dropout = 0;  // probability of dropout after embedding, attention and feed-forward network
  ComputeOptions compute;
};

// Bytes that a block keeps on one rank between forward and backward, from formulas.
struct BlockActivations {
  double kept = 0;  // bytes in this model, without recomputation
  // Bytes in Megatron-LM in 16 bits: s b h (10 + 24/t + 5 a s / (h t)) or, with sequence
  // parallelism, s b h (34 + 5 a s / h) / t (Korthikanti et al. 2022, table 2). They include
  // dropout masks and the softmax's scores, which this model does not keep.
  double megatron = 0;
};

class Decoder : public Model {
 public:
  // Creates the part of the rank at `place`. The vocabulary, the attention's heads and the
  // feed-forward network's hidden values are sharded over the tensor axis. Throws
  // Error(invalid_argument) for invalid sizes.
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
  // Returns the biases for loss-free balancing of experts.
  std::vector<NamedBuffer> buffers() override;

 private:
  double used_share(const ParameterSpec& spec) const;

  DecoderOptions options_;
  std::shared_ptr<ExpertLoad> load_;  // counts the experts' tokens; null without experts
};

// Returns the ModelKind of a decoder, which creates models of type `Made` from a `Config`.
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
