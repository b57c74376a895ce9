#include "training/models/llama.h"

#include <algorithm>
#include <array>
#include <string>

namespace tutti::training {
namespace {

void describe_experts(Schema& schema, LlamaConfig& config) {
  RouterOptions& router = config.router;
  schema.add("experts", router.experts, "number of experts per block").at_least(1);
  schema.add("topk", router.topk, "number of experts per token").at_least(1);
  schema
      .add("scores", router.scores,
           {{"softmax", ExpertScores::softmax}, {"sigmoid", ExpertScores::sigmoid}},
           "score function of the router: softmax or sigmoid")
      .flag("--router-scores");
  schema
      .add("renormalize", router.renormalize,
           "do not normalize the weights of a token's experts to a sum of 1")
      .flag("--no-renormalize", false);
  schema
      .add("weight_scale", router.weight_scale,
           "factor by which the router's weights of a token's experts are multiplied")
      .flag("--router-scale");
  schema.add("groups", router.groups, "number of groups into which the experts are divided")
      .flag("--expert-groups");
  schema.add("topk_groups", router.topk_groups,
             "number of expert groups from which a token's experts are chosen. The chosen groups "
             "are those with the largest sum of their two best scores");
  schema.add(
      "shared_hidden", config.shared_hidden,
      "hidden width of the shared expert, which processes every token (0: no shared expert)");
  schema.add("shared_gate", config.shared_gate, "use a sigmoid gate on the shared expert");
  schema
      .add("balance_loss", router.balance_loss, "weight of the load-balancing loss (0 disables it)")
      .role(kTrainingOnly);
  schema
      .add("balance", router.balance,
           {{"all-layers", BalanceOf::all_layers}, {"each-layer", BalanceOf::each_layer}},
           "layers over which expert load is balanced: all-layers (together) or each-layer "
           "(separately)")
      .role(kTrainingOnly);
  schema
      .add("balance_scope", router.balance_scope,
           {{"global", BalanceScope::global_batch},
            {"micro-batch", BalanceScope::micro_batch},
            {"sequence", BalanceScope::sequence}},
           "tokens over which expert load is balanced: global (batch), micro-batch or sequence")
      .role(kTrainingOnly);
  schema.add(
      "balance_bias", router.bias_rate,
      "update rate of the router bias for loss-free load balancing, such as 1e-3 (0 disables it)");
  schema.add("jitter", router.jitter, "relative random jitter of the router's input in training")
      .flag("--router-jitter")
      .role(kTrainingOnly);
  schema
      .add("z_loss", router.z_loss,
           "weight of the router z-loss, the mean squared log-sum-exp of the router's logits (0 "
           "disables it)")
      .role(kTrainingOnly);
  schema
      .add("capacity", router.capacity,
           "expert capacity factor (an expert keeps at most this multiple of an even share of a "
           "sample's choices and drops the rest; 0: no limit)")
      .role(kTrainingOnly);
  schema
      .add(
          "full", router.full,
          {{"position", FullExpert::by_position}, {"score", FullExpert::by_score}},
          "which tokens a full expert keeps: position (the first tokens) or score (the tokens with "
          "the largest weights)")
      .flag("--drop-by")
      .role(kTrainingOnly);
}

void describe(Schema& schema, LlamaConfig& config) {
  schema.add("layers", config.layers, "number of transformer blocks").between(0, kMostLayers);
  schema.add("heads", config.heads, "number of attention heads");
  schema.add("kv_heads", config.kv_heads, "number of key-value heads; 0: as many as --heads");
  schema.add("head_size", config.head_size, "size of an attention head; 0: width / heads");
  schema.add("width", config.width, "embedding width (hidden size)");
  schema.add("context", config.context, "context length in tokens").role(kTrainingOnly);
  schema.add("max_context", config.max_context,
             "maximum context length that the trained model supports, in tokens; 0: same as "
             "--context");
  schema
      .add("window", config.window,
           "sliding-window attention: number of tokens to which a token attends, including itself "
           "(0: itself and all tokens before it)")
      .flag("--attention-window");
  schema.add("vocabulary", config.vocabulary,
             "vocabulary size; training takes it from the data if it is not given");
  schema
      .add("hidden", config.hidden,
           "width of the feed-forward layer (0: 4 x --width, or 8/3 x --width rounded up to a "
           "multiple of 32 for swiglu and the Llama family)")
      .flag("--ffn-hidden-size");
  schema.add("norm_epsilon", config.norm_epsilon, "term added to the variance in normalizations");
  RopeOptions& rope = config.rope;
  schema.add("rope_base", rope.base, "base of the RoPE frequencies");
  schema.add("rope_scaling", rope.scaling,
             {{"none", RopeScaling::none},
              {"linear", RopeScaling::linear},
              {"dynamic", RopeScaling::dynamic},
              {"llama3", RopeScaling::llama3}},
             "RoPE scaling: none, linear, dynamic or llama3");
  schema.add("rope_factor", rope.factor, "RoPE scaling factor");
  schema.add("rope_original_context", rope.original_context,
             "context length of pre-training in tokens, for dynamic and llama3 RoPE scaling");
  schema.add("rope_low_turns", rope.low_turns, "Llama-3 RoPE scaling: low_freq_factor");
  schema.add("rope_high_turns", rope.high_turns, "Llama-3 RoPE scaling: high_freq_factor");
  schema.add("tied", config.tied, "do not tie input and output embeddings").flag("--untied", false);
  schema.add("attention_bias", config.attention_bias, "use bias in the linear layers of attention");
  schema.add("mlp_bias", config.mlp_bias, "use bias in the feed-forward layers");
  schema.add("dropout", config.dropout, "dropout probability").role(kTrainingOnly);
  if (config.family != LlamaFamily::llama) describe_experts(schema, config);
}

// Replaces zeros by the values that they stand for.
LlamaConfig completed(LlamaConfig config) {
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  if (config.head_size == 0 && config.heads > 0 && config.width % config.heads == 0) {
    config.head_size = config.width / config.heads;
  }
  if (config.max_context == 0) config.max_context = config.context;
  if (config.hidden == 0) config.hidden = (8 * config.width / 3 + 31) / 32 * 32;
  if (config.rope.original_context == 0) config.rope.original_context = config.max_context;
  return config;
}

Described<LlamaConfig> described(const char* kind, const LlamaConfig& defaults) {
  return {.prefix = "model",
          .tag = "kind",
          .name = kind,
          .describe = describe,
          .defaults = defaults,
          .complete = completed};
}

struct Family {
  LlamaFamily family;
  const char* meaning;
  std::string feed_forward;  // name of the module
  // names of the layers of an expert, or of the single feed-forward network
  std::vector<std::string> layers;
  HeadNormKind head_norm;  // norms of queries and keys
  Described<LlamaConfig> described;
};

const std::array<Family, 6>& families() {
  const std::vector<std::string> usual = {"gate_proj", "up_proj", "down_proj"};
  static const std::array<Family, 6> all = {{
      {LlamaFamily::llama, "Llama", "mlp", usual, HeadNormKind::none, described("llama", {})},
      {LlamaFamily::mixtral,
       "Mixtral: Llama with a mixture of experts",
       "block_sparse_moe",
       {"w1", "w3", "w2"},
       HeadNormKind::none,
       described("mixtral", {.family = LlamaFamily::mixtral, .router = {.experts = 8, .topk = 2}})},
      {LlamaFamily::qwen2moe, "Qwen2-MoE, with a shared expert", "mlp", usual, HeadNormKind::none,
       described("qwen2moe", {.family = LlamaFamily::qwen2moe,
                              .attention_bias = true,
                              .router = {.experts = 8, .topk = 4, .renormalize = false},
                              .shared_hidden = 256,
                              .shared_gate = true})},
      {LlamaFamily::qwen3moe, "Qwen3-MoE, with QK norm per head", "mlp", usual,
       HeadNormKind::each_head,
       described("qwen3moe",
                 {.family = LlamaFamily::qwen3moe, .router = {.experts = 8, .topk = 4}})},
      {LlamaFamily::olmoe, "OLMoE, with QK norm over all heads", "mlp", usual,
       HeadNormKind::all_heads,
       described("olmoe", {.family = LlamaFamily::olmoe,
                           .router = {.experts = 8, .topk = 4, .renormalize = false}})},
      {LlamaFamily::switch_transformer, "Llama with the routing of Switch Transformer", "mlp",
       usual, HeadNormKind::none,
       described("switch", {.family = LlamaFamily::switch_transformer,
                            .router = {.experts = 8,
                                       .topk = 1,
                                       .renormalize = false,
                                       .balance_loss = 0.01,
                                       .balance = BalanceOf::each_layer,
                                       .capacity = 1.25}})},
  }};
  return all;
}

const Family& family_of(const LlamaConfig& config) {
  return *std::ranges::find(families(), config.family, &Family::family);
}

DecoderOptions options_of(const LlamaConfig& config) {
  const Family& family = family_of(config);
  DecoderOptions options{.names = {.embedding = "embed_tokens",
                                   .positions = "",
                                   .block = "layers.",
                                   .attention_norm = "input_layernorm",
                                   .attention = "self_attn",
                                   .mlp_norm = "post_attention_layernorm",
                                   .mlp = family.feed_forward,
                                   .last_norm = "norm"},
                         .layers = config.layers,
                         .width = config.width,
                         .vocabulary = config.vocabulary,
                         .context = config.context,
                         .max_context = config.max_context,
                         .norm = NormKind::rms,
                         .norm_epsilon = config.norm_epsilon,
                         .rope = config.rope,
                         .attention = {.heads = config.heads,
                                       .key_heads = config.kv_heads,
                                       .head_size = config.head_size,
                                       .window = config.window,
                                       .bias = config.attention_bias,
                                       .in = {"q_proj", "k_proj", "v_proj"},
                                       .out = "o_proj",
                                       .head_norm = family.head_norm},
                         .mlp = {.hidden = config.hidden,
                                 .kind = MlpKind::swiglu,
                                 .bias = config.mlp_bias,
                                 .names = family.layers},
                         .mixture = {.router = config.router,
                                     .shared_hidden = config.shared_hidden,
                                     .shared_gate = config.shared_gate,
                                     .shared_names = family.layers},
                         .tied = config.tied,
                         .dropout = config.dropout,
                         .compute = config.compute};
  // Qwen2-MoE has biases in the attention, but not in its output layer.
  if (config.family == LlamaFamily::qwen2moe) options.attention.output_bias = false;
  return options;
}

}  // namespace

Llama::Llama(const LlamaConfig& config, const MeshPlace& place)
    : Decoder(options_of(completed(config)), place), config_(completed(config)) {}

Json Llama::configuration() const { return family_of(config_).described.write(config_); }

std::vector<ModelKind> llama_kinds() {
  std::vector<ModelKind> kinds;
  for (const Family& family : families()) {
    kinds.push_back(decoder_kind<Llama>(family.meaning, family.described));
  }
  return kinds;
}

}  // namespace tutti::training
