#include "training/models/gpt.h"

namespace tutti::training {
namespace {

void describe(Schema& schema, GptConfig& config) {
  schema.add("layers", config.layers, "blocks").between(0, kMostLayers);
  schema.add("heads", config.heads, "number of attention heads");
  schema.add("width", config.width, "values per position");
  schema.add("context", config.context, "tokens that the model sees").role(kTrainingOnly);
  schema.add("max_context", config.max_context,
             "tokens that it can be made to see later; 0: as --context");
  schema.add("vocabulary", config.vocabulary, "kinds of tokens; as the data has");
  schema.add("hidden", config.hidden, "width of the feed-forward layer; 0: 4 x width")
      .flag("--ffn-hidden-size");
  schema.add("norm", config.norm, {{"layer", NormKind::layer}, {"rms", NormKind::rms}},
             "layer or rms");
  schema.add("norm_epsilon", config.norm_epsilon, "added to variances");
  schema.add("mlp", config.mlp, {{"gelu", MlpKind::gelu}, {"swiglu", MlpKind::swiglu}},
             "gelu or swiglu");
  schema.add("positions", config.positions,
             {{"learned", Positions::learned}, {"rope", Positions::rope}}, "learned or rope");
  schema.add("tied", config.tied, "do not tie input and output embeddings").flag("--untied", false);
  schema.add("bias", config.bias, "no bias in linear layers").flag("--no-bias", false);
  schema.add("dropout", config.dropout, "share of values").role(kTrainingOnly);
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
