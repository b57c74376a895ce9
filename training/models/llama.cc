#include "training/models/llama.h"

namespace tutti::training {
namespace {

void describe(Schema& schema, LlamaConfig& config) {
  schema.add("layers", config.layers, "blocks").between(0, kMostLayers);
  schema.add("heads", config.heads, "number of attention heads");
  schema.add("kv_heads", config.kv_heads, "number of key-value heads; 0: as many as --heads");
  schema.add("head_size", config.head_size, "values of a head; 0: width / heads");
  schema.add("width", config.width, "values per position");
  schema.add("context", config.context, "tokens that the model sees").role(kTrainingOnly);
  schema.add("max_context", config.max_context,
             "tokens that it can be made to see later; 0: as --context");
  schema
      .add("window", config.window,
           "tokens that each token attends to at most, the last ones (a sliding window); 0: all")
      .flag("--attention-window");
  schema.add("vocabulary", config.vocabulary, "kinds of tokens; as the data has");
  schema.add("hidden", config.hidden, "width of the feed-forward layer; 0: 8/3 x width")
      .flag("--ffn-hidden-size");
  schema.add("norm_epsilon", config.norm_epsilon, "added to variances");
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
             "dynamic, llama3: context length of pre-training");
  schema.add("rope_low_turns", rope.low_turns, "Llama-3 RoPE scaling: low_freq_factor");
  schema.add("rope_high_turns", rope.high_turns, "Llama-3 RoPE scaling: high_freq_factor");
  schema.add("tied", config.tied, "do not tie input and output embeddings").flag("--untied", false);
  schema.add("attention_bias", config.attention_bias, "in the attention's linear layers");
  schema.add("mlp_bias", config.mlp_bias, "in the feed-forward part's");
  schema.add("dropout", config.dropout, "share of values").role(kTrainingOnly);
}

// With what 0 stands for.
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

const Described<LlamaConfig> kLlama{
    .prefix = "model", .tag = "kind", .name = "llama", .describe = describe, .complete = completed};

DecoderOptions options_of(const LlamaConfig& config) {
  return {.names = {.embedding = "embed_tokens",
                    .positions = "",
                    .block = "layers.",
                    .attention_norm = "input_layernorm",
                    .attention = "self_attn",
                    .mlp_norm = "post_attention_layernorm",
                    .mlp = "mlp",
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
                        .out = "o_proj"},
          .mlp = {.hidden = config.hidden,
                  .kind = MlpKind::swiglu,
                  .bias = config.mlp_bias,
                  .names = {"gate_proj", "up_proj", "down_proj"}},
          .tied = config.tied,
          .dropout = config.dropout,
          .compute = config.compute};
}

}  // namespace

Llama::Llama(const LlamaConfig& config, const MeshPlace& place)
    : Decoder(options_of(completed(config)), place), config_(completed(config)) {}

Json Llama::configuration() const { return kLlama.write(config_); }

ModelKind llama_kind() { return decoder_kind<Llama>("Llama", kLlama); }

}  // namespace tutti::training
