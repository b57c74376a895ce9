// GPT2LMHeadModel. Its linear layers are Conv1D, stored as inputs x outputs.
#include "base/error.h"
#include "base/text.h"
#include "training/hugging_face/architecture.h"

namespace tutti::training::hugging_face {
namespace {

// Returns a size. GPT2Config has aliases for its sizes (attribute_map), which take precedence if a
// file has both.
int64_t size_named(const ConfigReader& config, std::string_view second_name,
                   std::string_view name) {
  return config.has(second_name) ? config.whole(second_name) : config.whole(name);
}

Json gpt2_model_of(const ConfigReader& config) {
  const std::string activation = config.text("activation_function", "gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    config.refuse("activation_function", "gelu_new, the tanh form of GELU");
  }
  if (!config.truth("scale_attn_weights", true)) config.refuse("scale_attn_weights", "true");
  for (const char* field : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
    if (config.truth(field, false)) config.refuse(field, "false");
  }
  const int64_t width = size_named(config, "hidden_size", "n_embd");
  return {{"layers", size_named(config, "num_hidden_layers", "n_layer")},
          {"heads", size_named(config, "num_attention_heads", "n_head")},
          {"width", width},
          {"max_context", size_named(config, "max_position_embeddings", "n_positions")},
          {"vocabulary", config.whole("vocab_size")},
          {"hidden", config.whole("n_inner", 4 * width)},
          {"norm_epsilon", config.number("layer_norm_epsilon", 1e-5)},
          {"tied", config.truth("tie_word_embeddings", true)}};
}

void gpt2_describe(const Json& model, Json& config) {
  const bool is_gpt2 = model.at("norm") == "layer" && model.at("mlp") == "gelu" &&
                       model.at("positions") == "learned" && model.at("bias") == true;
  if (!is_gpt2) {
    throw Error(ErrorCode::unsupported, "the model has parts that GPT2LMHeadModel does not have",
                {.cause = "it has RMSNorm, SwiGLU or rotary positions, or no biases",
                 .remedy = "train such a model with --model llama, or export it to a file: "
                           "tutti export RUN_DIR FILE.safetensors"});
  }
  for (const char* second_name :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"}) {
    config.erase(second_name);
  }
  config["vocab_size"] = model.at("vocabulary");
  config["n_positions"] = model.at("max_context");
  config["n_embd"] = model.at("width");
  config["n_layer"] = model.at("layers");
  config["n_head"] = model.at("heads");
  config["n_inner"] = model.at("hidden");
  config["activation_function"] = "gelu_new";
  config["layer_norm_epsilon"] = model.at("norm_epsilon");
  config["tie_word_embeddings"] = model.at("tied");
  // The model here has a single dropout rate, and no dropout of attention weights.
  for (const char* field : {"embd_pdrop", "resid_pdrop"}) {
    if (!config.contains(field)) config[field] = model.at("dropout");
  }
  if (!config.contains("attn_pdrop")) config["attn_pdrop"] = 0.0;
}

bool gpt2_is_transposed(std::string_view parameter) {
  return parameter.ends_with("c_attn.weight") || parameter.ends_with("c_proj.weight") ||
         parameter.ends_with("c_fc.weight");
}

// Returns true for causal masks.
bool gpt2_is_constant(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

}  // namespace

Architecture gpt2() {
  return {.class_name = "GPT2LMHeadModel",
          .model_type = "gpt2",
          .kind = "gpt2",
          .prefix = "transformer.",
          .embedding = "wte.weight",
          .model_of = gpt2_model_of,
          .mismatch = [](const Json&) { return std::string(); },
          .describe = gpt2_describe,
          .is_transposed = gpt2_is_transposed,
          .is_constant = gpt2_is_constant};
}

}  // namespace tutti::training::hugging_face
