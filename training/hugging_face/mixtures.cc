// Llama with experts: MixtralForCausalLM, Qwen2MoeForCausalLM, Qwen3MoeForCausalLM and
// OlmoeForCausalLM.
#include <string>

#include "base/text.h"
#include "training/hugging_face/llama.h"

namespace tutti::training::hugging_face {
namespace {

// Returns the weight of the balance loss, which transformers adds only if output_router_logits is
// true.
double balance_loss_of(const ConfigReader& config) {
  if (!config.truth("output_router_logits", false)) return 0;
  return config.number("router_aux_loss_coef", 0.001);
}

void describe_balance_loss(const Json& model, Json& config) {
  config["router_aux_loss_coef"] = model.at("balance_loss");
  config["output_router_logits"] = model.at("balance_loss") != 0;
}

// Reads the fields that all these architectures except Mixtral share.
void read_choice(const ConfigReader& config, int64_t usual, Json& model) {
  model["topk"] = config.whole("num_experts_per_tok", usual);
  model["renormalize"] = config.truth("norm_topk_prob", false);
  model["balance_loss"] = balance_loss_of(config);
}

void describe_choice(const Json& model, Json& config) {
  config["num_experts"] = model.at("experts");
  config["num_experts_per_tok"] = model.at("topk");
  config["norm_topk_prob"] = model.at("renormalize");
  describe_balance_loss(model, config);
}

// Returns the reason why no architecture here can represent the model's routing; empty if one can.
std::string routing_mismatch(const Json& model) {
  if (model.at("scores") != "softmax") return "scores experts by softmax";
  if (model.at("weight_scale") != 1) return "does not scale the experts' weights";
  if (model.at("groups") != 1) return "has no groups of experts";
  if (model.at("balance_bias") != 0) return "has no bias for balancing experts";
  if (model.at("capacity") != 0) return "has no expert capacity (--capacity)";
  if (model.at("mlp_bias") == true) return "has no biases in experts";
  return "";
}

void refuse_unless_0(const ConfigReader& config, const char* field) {
  if (config.number(field, 0) != 0) config.refuse(field, "0");
}

Json mixtral_model_of(const ConfigReader& config) {
  refuse_unless_0(config, "router_jitter_noise");
  Json model = llama_model_of(config, {.rope_base = 1e6, .norm_epsilon = 1e-5});
  model["window"] = config.whole("sliding_window", 0);
  model["experts"] = config.whole("num_local_experts", 8);
  model["topk"] = config.whole("num_experts_per_tok", 2);
  model["balance_loss"] = balance_loss_of(config);
  return model;
}

void mixtral_describe(const Json& model, Json& config) {
  llama_describe(model, config);
  config["sliding_window"] = model.at("window") == 0 ? Json() : model.at("window");
  config["num_local_experts"] = model.at("experts");
  config["num_experts_per_tok"] = model.at("topk");
  config["router_jitter_noise"] = 0.0;
  describe_balance_loss(model, config);
}

std::string mixtral_mismatch(const Json& model) {
  if (model.at("renormalize") != true) return "divides the experts' weights by their sum";
  if (model.at("shared_hidden") != 0) return "has no shared expert";
  if (model.at("attention_bias") == true) return "has no biases";
  return routing_mismatch(model);
}

// Reads the fields that Qwen2-MoE and Qwen3-MoE share.
Json qwen_model_of(const ConfigReader& config) {
  if (config.whole("decoder_sparse_step", 1) != 1) config.refuse("decoder_sparse_step", "1");
  if (config.truth("use_sliding_window", false)) config.refuse("use_sliding_window", "false");
  const Json* const dense = config.json().find("mlp_only_layers");
  if (dense != nullptr && !dense->empty()) config.refuse("mlp_only_layers", "none");
  return llama_model_of(config);
}

void qwen_describe(const Json& model, Json& config) {
  llama_describe(model, config);
  config["use_sliding_window"] = false;
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = Json::array();
  config["moe_intermediate_size"] = model.at("hidden");
  config["num_local_experts"] = model.at("experts");  // name in Qwen3-MoE of transformers 5
  describe_choice(model, config);
}

Json qwen2moe_model_of(const ConfigReader& config) {
  Json model = qwen_model_of(config);
  model["attention_bias"] = config.truth("qkv_bias", true);
  model["hidden"] = config.whole("moe_intermediate_size", 1408);
  model["shared_hidden"] = config.whole("shared_expert_intermediate_size", 5632);
  model["shared_gate"] = true;
  model["experts"] = config.whole("num_experts", 60);
  read_choice(config, 4, model);
  return model;
}

void qwen2moe_describe(const Json& model, Json& config) {
  qwen_describe(model, config);
  config["qkv_bias"] = model.at("attention_bias");
  config["shared_expert_intermediate_size"] = model.at("shared_hidden");
}

std::string qwen2moe_misfit(const Json& model) {
  if (model.at("shared_hidden") == 0 || model.at("shared_gate") != true) {
    return "has a shared expert with a gate";
  }
  if (model.at("window") != 0) return "has no sliding attention window";
  return routing_mismatch(model);
}

Json qwen3moe_model_of(const ConfigReader& config) {
  Json model = qwen_model_of(config);
  model["hidden"] = config.whole("moe_intermediate_size", 768);
  // transformers 5 has another name for the number of experts.
  model["experts"] = config.whole("num_experts", config.whole("num_local_experts", 128));
  read_choice(config, 8, model);
  return model;
}

Json olmoe_model_of(const ConfigReader& config) {
  refuse_unless_0(config, "clip_qkv");
  Json model = llama_model_of(config, {.norm_epsilon = 1e-5});
  model["experts"] = config.whole("num_experts", 64);
  read_choice(config, 8, model);
  return model;
}

void olmoe_describe(const Json& model, Json& config) {
  llama_describe(model, config);
  describe_choice(model, config);
}

// Returns the reason why Qwen3-MoE or OLMoE cannot represent the model; empty if it can.
std::string unshared_mismatch(const Json& model) {
  if (model.at("shared_hidden") != 0) return "has no shared expert";
  if (model.at("window") != 0) return "has no sliding attention window";
  return routing_mismatch(model);
}

// Returns Llama's architecture with these members replaced.
Architecture with_experts(const char* class_name, const char* model_type, const char* kind,
                          decltype(Architecture::model_of) model_of,
                          decltype(Architecture::mismatch) mismatch,
                          decltype(Architecture::describe) describe) {
  Architecture made = llama();
  made.class_name = class_name;
  made.model_type = model_type;
  made.kind = kind;
  made.model_of = model_of;
  made.mismatch = mismatch;
  made.describe = describe;
  return made;
}

}  // namespace

Architecture mixtral() {
  return with_experts("MixtralForCausalLM", "mixtral", "mixtral", mixtral_model_of,
                      mixtral_mismatch, mixtral_describe);
}

Architecture qwen2moe() {
  return with_experts("Qwen2MoeForCausalLM", "qwen2_moe", "qwen2moe", qwen2moe_model_of,
                      qwen2moe_misfit, qwen2moe_describe);
}

Architecture qwen3moe() {
  return with_experts("Qwen3MoeForCausalLM", "qwen3_moe", "qwen3moe", qwen3moe_model_of,
                      unshared_mismatch, qwen_describe);
}

Architecture olmoe() {
  return with_experts("OlmoeForCausalLM", "olmoe", "olmoe", olmoe_model_of, unshared_mismatch,
                      olmoe_describe);
}

}  // namespace tutti::training::hugging_face
