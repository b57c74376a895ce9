// LlamaForCausalLM, and MistralForCausalLM, which adds a window.
#include "training/hugging_face/llama.h"

#include "base/error.h"
#include "base/text.h"

namespace tutti::training::hugging_face {
namespace {

// Reads the settings of rotary positions. transformers 5 writes all fields to rope_parameters;
// transformers 4 wrote the base separately. If a file has both and they contradict each other,
// precedence is as in transformers 5 (PreTrainedConfig.convert_rope_params_to_dict and
// standardize_rope_params).
void read_rope(const ConfigReader& config, int64_t max_context, double base, Json& model) {
  ConfigReader rope = config.object("rope_scaling");
  if (rope.json().empty()) rope = config.object("rope_parameters");
  model["rope_base"] = rope.number("rope_theta", config.number("rope_theta", base));
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type != "default" && type != "linear" && type != "dynamic" && type != "llama3") {
    rope.refuse(rope.has("rope_type") ? "rope_type" : "type",
                "default, linear, dynamic and llama3");
  }
  const ConfigReader& place = rope.has("partial_rotary_factor") ? rope : config;
  if (place.number("partial_rotary_factor", 1) != 1) place.refuse("partial_rotary_factor", "1");
  if (type == "default") return;
  model["rope_scaling"] = type;
  model["rope_factor"] = rope.number("factor");
  if (type == "dynamic") model["rope_original_context"] = max_context;
  if (type != "llama3") return;
  constexpr const char* kOriginal = "original_max_position_embeddings";
  model["rope_original_context"] = config.whole(kOriginal, rope.whole(kOriginal, max_context));
  model["rope_low_turns"] = rope.number("low_freq_factor");
  model["rope_high_turns"] = rope.number("high_freq_factor");
}

}  // namespace

Json llama_model_of(const ConfigReader& config, const LlamaDefaults& defaults) {
  const std::string activation = config.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") config.refuse("hidden_act", "silu");
  const int64_t width = config.whole("hidden_size");
  const int64_t heads = config.whole("num_attention_heads");
  const int64_t context = config.whole("max_position_embeddings", 2048);
  Json model = {{"layers", config.whole("num_hidden_layers")},
                {"heads", heads},
                {"kv_heads", config.whole("num_key_value_heads", heads)},
                {"head_size", config.whole("head_dim", heads == 0 ? 0 : width / heads)},
                {"width", width},
                {"hidden", config.whole("intermediate_size")},
                {"max_context", context},
                {"vocabulary", config.whole("vocab_size")},
                {"norm_epsilon", config.number("rms_norm_eps", defaults.norm_epsilon)},
                {"tied", config.truth("tie_word_embeddings", false)},
                {"attention_bias", config.truth("attention_bias", false)},
                {"mlp_bias", config.truth("mlp_bias", false)}};
  read_rope(config, context, defaults.rope_base, model);
  return model;
}

namespace {

// Writes the settings of rotary positions in a form that transformers 4 and 5 read.
void describe_rope(const Json& model, Json& config) {
  const Json& type = model.at("rope_scaling");
  Json rope = {{"rope_type", type == "none" ? Json("default") : type}};
  if (type != "none") rope["factor"] = model.at("rope_factor");
  if (type == "llama3") {
    rope["low_freq_factor"] = model.at("rope_low_turns");
    rope["high_freq_factor"] = model.at("rope_high_turns");
    rope["original_max_position_embeddings"] = model.at("rope_original_context");
  }
  config["rope_theta"] = model.at("rope_base");
  config["rope_scaling"] = type == "none" ? Json() : rope;
  rope["rope_theta"] = model.at("rope_base");
  config["rope_parameters"] = rope;
}

}  // namespace

void llama_describe(const Json& model, Json& config) {
  config["vocab_size"] = model.at("vocabulary");
  config["hidden_size"] = model.at("width");
  config["intermediate_size"] = model.at("hidden");
  config["num_hidden_layers"] = model.at("layers");
  config["num_attention_heads"] = model.at("heads");
  config["num_key_value_heads"] = model.at("kv_heads");
  config["head_dim"] = model.at("head_size");
  // A dynamic base is scaled for contexts beyond this length.
  config["max_position_embeddings"] =
      model.at(model.at("rope_scaling") == "dynamic" ? "rope_original_context" : "max_context");
  config["hidden_act"] = "silu";
  config["rms_norm_eps"] = model.at("norm_epsilon");
  config["attention_bias"] = model.at("attention_bias");
  config["mlp_bias"] = model.at("mlp_bias");
  config["tie_word_embeddings"] = model.at("tied");
  if (!config.contains("attention_dropout")) config["attention_dropout"] = 0.0;
  describe_rope(model, config);
}

namespace {

bool llama_is_transposed(std::string_view) { return false; }

// Returns true for the frequencies of rotary positions.
bool llama_is_constant(std::string_view name) { return name.ends_with(".rotary_emb.inv_freq"); }

std::string llama_mismatch(const Json& model) {
  return model.at("window") == 0 ? "" : "has no sliding attention window";
}

Json mistral_model_of(const ConfigReader& config) {
  constexpr int64_t kUsual = 4096;  // default of a missing window; null means all tokens
  Json model = llama_model_of(config);
  const bool said = config.json().contains("sliding_window");
  model["window"] = config.whole("sliding_window", said ? 0 : kUsual);
  return model;
}

void mistral_describe(const Json& model, Json& config) {
  llama_describe(model, config);
  config["sliding_window"] = model.at("window");
}

std::string mistral_mismatch(const Json& model) {
  const bool has_biases = model.at("attention_bias") == true || model.at("mlp_bias") == true;
  return has_biases ? "has no biases" : "";
}

}  // namespace

Architecture llama() {
  return {.class_name = "LlamaForCausalLM",
          .model_type = "llama",
          .kind = "llama",
          .prefix = "model.",
          .embedding = "embed_tokens.weight",
          .model_of = [](const ConfigReader& config) { return llama_model_of(config); },
          .mismatch = llama_mismatch,
          .describe = llama_describe,
          .is_transposed = llama_is_transposed,
          .is_constant = llama_is_constant};
}

Architecture mistral() {
  Architecture mistral = llama();
  mistral.class_name = "MistralForCausalLM";
  mistral.model_type = "mistral";
  mistral.model_of = mistral_model_of;
  mistral.mismatch = mistral_mismatch;
  mistral.describe = mistral_describe;
  return mistral;
}

}  // namespace tutti::training::hugging_face
