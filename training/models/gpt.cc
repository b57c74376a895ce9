#include "training/models/gpt.h"

namespace tutti::training {
namespace {

void describe(Schema& schema, GptConfig& config) {
  schema.add("layers", config.layers, "number of transformer blocks").between(0, kMostLayers);
  schema.add("heads", config.heads, "number of attention heads");
  schema.add("width", config.width, "embedding width (hidden size)");
  schema.add("context", config.context, "context length in tokens").role(kTrainingOnly);
  schema.add("max_context", config.max_context,
             "maximum context length that the trained model supports, in tokens; 0: same as "
             "--context");
  schema.add("vocabulary", config.vocabulary,
             "vocabulary size; training takes it from the data if it is not given");
  schema
      .add("hidden", config.hidden,
           "width of the feed-forward layer (0: 4 x --width, or 8/3 x --width rounded up to a "
           "multiple of 32 for swiglu and the Llama family)")
      .flag("--ffn-hidden-size");
  schema.add("norm", config.norm, {{"layer", NormKind::layer}, {"rms", NormKind::rms}},
             "normalization: layer (LayerNorm) or rms (RMSNorm)");
  schema.add("norm_epsilon", config.norm_epsilon, "term added to the variance in normalizations");
  schema.add("mlp", config.mlp, {{"gelu", MlpKind::gelu}, {"swiglu", MlpKind::swiglu}},
             "feed-forward activation: gelu or swiglu");
  schema.add("positions", config.positions,
             {{"learned", Positions::learned}, {"rope", Positions::rope}},
             "position encoding: learned or rope");
  schema.add("tied", config.tied, "do not tie input and output embeddings").flag("--untied", false);
  schema.add("bias", config.bias, "do not use bias in linear layers").flag("--no-bias", false);
  schema.add("dropout", config.dropout, "dropout probability").role(kTrainingOnly);
}

// Replaces zeros by the values that they stand for.
GptConfig completed(GptConfig config) {
  if (config.max_context == 0) config.max_context = config.context;
  if (config.hidden == 0) {
    config.hidden =
        config.mlp == MlpKind::gelu ? 4 * config.width : (8 * config.width / 3 + 31) / 32 * 32;
  }
  return config;
}

const Described<GptConfig> kGpt2{
    .prefix = "model", .tag = "kind", .name = "gpt2", .describe = describe, .complete = completed};

DecoderOptions options_of(const GptConfig& config) {
  DecoderOptions options{.names = {.embedding = "wte",
                                   .positions = "wpe",
                                   .block = "h.",
                                   .attention_norm = "ln_1",
                                   .attention = "attn",
                                   .mlp_norm = "ln_2",
                                   .mlp = "mlp",
                                   .last_norm = "ln_f"},
                         .layers = config.layers,
                         .width = config.width,
                         .vocabulary = config.vocabulary,
                         .context = config.context,
                         .max_context = config.max_context,
                         .learned_positions = config.positions == Positions::learned,
                         .norm = config.norm,
                         .norm_epsilon = config.norm_epsilon,
                         .attention = {.heads = config.heads, .bias = config.bias},
                         .mlp = {.hidden = config.hidden, .kind = config.mlp, .bias = config.bias},
                         .tied = config.tied,
                         .dropout = config.dropout,
                         .compute = config.compute};
  if (config.positions == Positions::rope) options.rope.emplace();
  return options;
}

}  // namespace

Gpt::Gpt(const GptConfig& config, const MeshPlace& place)
    : Decoder(options_of(completed(config)), place), config_(completed(config)) {}

Json Gpt::configuration() const { return kGpt2.write(config_); }

ModelKind gpt2_kind() { return decoder_kind<Gpt>("GPT-2 and its successors", kGpt2); }

}  // namespace tutti::training
