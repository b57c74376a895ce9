// Finds known models by name, and reads models from configuration files.
#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/names.h"
#include "base/text.h"
#include "training/hugging_face/config_reader.h"
#include "training/models/registry.h"
#include "training/planner/model_shape.h"

namespace tutti::training::planner {

namespace {

using hugging_face::ConfigReader;

ModelShape gpt(const char* name, int64_t layers, int64_t hidden, int64_t heads,
               int64_t vocabulary = 51200, int64_t positions = 2048) {
  return {.name = name,
          .layers = layers,
          .hidden = hidden,
          .feed_forward = 4 * hidden,
          .heads = heads,
          .kv_heads = heads,
          .head_width = hidden / heads,
          .vocabulary = vocabulary,
          .positions = positions};
}

ModelShape llama(const char* name, int64_t layers, int64_t hidden, int64_t feed_forward,
                 int64_t heads, int64_t kv_heads, int64_t vocabulary, int64_t head_width = 0) {
  return {.name = name,
          .layers = layers,
          .hidden = hidden,
          .feed_forward = feed_forward,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_width = head_width > 0 ? head_width : hidden / heads,
          .vocabulary = vocabulary,
          .gated = true,
          .tied = false,
          .has_biases = false};
}

ModelShape with(ModelShape model, const ExpertShape& experts, const LatentAttention& latent = {}) {
  model.experts = experts;
  model.latent = latent;
  return model;
}

// Returns models with the sizes that their authors publish: Brown et al., 2020; Narayanan et al.,
// 2021, table 1; Touvron et al., 2023; Dubey et al., 2024; Jiang et al., 2024; DeepSeek-AI, 2024;
// Qwen team, 2025; OpenAI, 2025 (the last four: their config.json).
const std::vector<ModelShape>& known() {
  static const std::vector<ModelShape> models = {
      gpt("gpt2", 12, 768, 12, 50257, 1024),
      gpt("gpt2-medium", 24, 1024, 16, 50257, 1024),
      gpt("gpt2-large", 36, 1280, 20, 50257, 1024),
      gpt("gpt2-xl", 48, 1600, 25, 50257, 1024),
      gpt("gpt3-175b", 96, 12288, 96, 50257),
      gpt("megatron-1.7b", 24, 2304, 24),
      gpt("megatron-3.6b", 30, 3072, 32),
      gpt("megatron-7.5b", 36, 4096, 32),
      gpt("megatron-18.4b", 40, 6144, 48),
      gpt("megatron-39.1b", 48, 8192, 64),
      gpt("megatron-76.1b", 60, 10240, 80),
      gpt("megatron-145.6b", 80, 12288, 96),
      gpt("megatron-310.1b", 96, 16384, 128),
      gpt("megatron-529.6b", 105, 20480, 128),
      gpt("megatron-1008b", 128, 25600, 160),
      llama("llama2-7b", 32, 4096, 11008, 32, 32, 32000),
      llama("llama2-13b", 40, 5120, 13824, 40, 40, 32000),
      llama("llama2-70b", 80, 8192, 28672, 64, 8, 32000),
      llama("llama3-8b", 32, 4096, 14336, 32, 8, 128256),
      llama("llama3-70b", 80, 8192, 28672, 64, 8, 128256),
      llama("llama3-405b", 126, 16384, 53248, 128, 8, 128256),
      with(llama("mixtral-8x7b", 32, 4096, 14336, 32, 8, 32000),
           {.count = 8, .chosen = 2, .hidden = 14336}),
      with(llama("mixtral-8x22b", 56, 6144, 16384, 48, 8, 32768),
           {.count = 8, .chosen = 2, .hidden = 16384}),
      with(llama("deepseek-v3", 61, 7168, 18432, 128, 128, 129280, 128),
           {.count = 256, .chosen = 8, .hidden = 2048, .shared = 2048, .dense_layers = 3},
           {.query_rank = 1536, .kv_rank = 512, .rope = 64}),
      with(llama("qwen3-30b-a3b", 48, 2048, 6144, 32, 4, 151936, 128),
           {.count = 128, .chosen = 8, .hidden = 768}),
      with(llama("qwen3-235b-a22b", 94, 4096, 12288, 64, 4, 151936, 128),
           {.count = 128, .chosen = 8, .hidden = 1536}),
      with(llama("gpt-oss-120b", 36, 2880, 2880, 64, 8, 201088, 64),
           {.count = 128, .chosen = 4, .hidden = 2880})};
  return models;
}

// Returns the value of the first of these fields that exists.
int64_t first_of(const ConfigReader& config, std::initializer_list<std::string_view> fields,
                 std::optional<int64_t> fallback = {}) {
  for (const std::string_view field : fields) {
    if (config.has(field)) return config.whole(field);
  }
  return config.whole(*fields.begin(), fallback);
}

bool is_gated(const ConfigReader& config) {
  const std::string type = config.text("model_type", std::string());
  if (type == "gpt2" || type == "gpt_neox" || type == "opt" || type == "bloom" || type == "mpt") {
    return false;
  }
  return config.has("intermediate_size") || config.has("moe_intermediate_size");
}

ModelShape from_config(const ConfigReader& c) {
  ModelShape m;
  m.name = c.text("_name_or_path", c.text("model_type", std::string("config.json")));
  m.layers = first_of(c, {"num_hidden_layers", "n_layer", "n_layers"});
  m.hidden = first_of(c, {"hidden_size", "n_embd", "d_model"});
  m.heads = first_of(c, {"num_attention_heads", "n_head", "n_heads"});
  m.kv_heads = c.whole("num_key_value_heads", m.heads);
  m.vocabulary = c.whole("vocab_size");
  if (m.heads < 1) throw Error(ErrorCode::invalid_argument, cat(c.path(), ": it has no heads"));
  m.gated = is_gated(c);
  m.has_biases = !m.gated;
  m.feed_forward = first_of(c, {"intermediate_size", "n_inner", "ffn_dim"}, 4 * m.hidden);
  m.head_width = c.whole("v_head_dim", c.whole("head_dim", m.hidden / m.heads));
  if (!m.gated) m.positions = first_of(c, {"n_positions", "n_ctx", "max_position_embeddings"}, 0);
  m.tied = c.truth("tie_word_embeddings", !m.gated);
  m.latent = {.query_rank = c.whole("q_lora_rank", 0),
              .kv_rank = c.whole("kv_lora_rank", 0),
              .rope = c.whole("qk_rope_head_dim", 0)};
  m.experts.count = first_of(c, {"num_local_experts", "num_experts", "n_routed_experts"}, 0);
  if (m.experts.count > 0) {
    m.experts.chosen = first_of(c, {"num_experts_per_tok", "experts_per_token"}, 1);
    m.experts.hidden = c.whole("moe_intermediate_size", m.feed_forward);
    m.experts.shared = c.whole("shared_expert_intermediate_size",
                               c.whole("n_shared_experts", 0) * m.experts.hidden);
    m.experts.dense_layers = std::min(c.whole("first_k_dense_replace", 0), m.layers);
  }
  return m;
}

// Reads a configuration of `tutti train --config`; missing fields have the model's defaults.
ModelShape from_ours(const ConfigReader& file) {
  const Json model = completed_model(file.json().at("model"));
  const auto has = [&](const char* field) { return model.contains(field); };
  if (!has("layers") || !has("heads") || !has("width")) {
    throw Error(ErrorCode::unsupported, cat(file.path(), " is not a transformer"),
                {.remedy = "use gpt2, llama or a mixture of experts"});
  }
  ModelShape m;
  m.name = model["kind"].get<std::string>();
  m.layers = model["layers"];
  m.hidden = model["width"];
  m.heads = model["heads"];
  const int64_t keys = model.value("kv_heads", int64_t{0});
  m.kv_heads = keys > 0 ? keys : m.heads;
  const int64_t head = model.value("head_size", int64_t{0});
  m.head_width = head > 0 ? head : m.hidden / m.heads;
  m.gated = model.value("mlp", std::string("swiglu")) == "swiglu";
  m.has_biases = model.value("bias", false);
  m.tied = model.value("tied", true);
  m.vocabulary = model["vocabulary"];
  const int64_t values = model.value("hidden", int64_t{0});
  m.feed_forward = values > 0 ? values : 4 * m.hidden;
  if (model.value("positions", std::string("rope")) == "learned") {
    m.positions = std::max<int64_t>(model.value("max_context", int64_t{0}), model["context"]);
  }
  m.experts.count = model.value("experts", int64_t{0});
  if (m.experts.count > 0) {
    m.experts.chosen = model.value("topk", int64_t{1});
    m.experts.hidden = m.feed_forward;
    m.experts.shared = model.value("shared_hidden", int64_t{0});
  }
  return m;
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelShape& model : known()) names.push_back(model.name);
  return names;
}

ModelShape load_model_shape(const std::string& name_or_file) {
  const auto found = std::ranges::find(known(), name_or_file, &ModelShape::name);
  if (found != known().end()) return *found;
  std::error_code ignored;
  std::filesystem::path path = name_or_file;
  if (std::filesystem::is_directory(path, ignored)) path /= "config.json";
  if (!std::filesystem::exists(path, ignored)) {
    throw Error(ErrorCode::invalid_argument, cat("unknown model '", name_or_file, "'"),
                {.remedy = cat(
                     did_you_mean(name_or_file, model_names()),
                     "Use a Hugging Face config.json, a configuration of `tutti train`, or one of ",
                     listed(model_names()))});
  }
  const ConfigReader config = ConfigReader::open(path.string());
  ModelShape model = config.has("model") ? from_ours(config) : from_config(config);
  if (model.name.empty()) model.name = path.string();
  require_possible(model);
  return model;
}

}  // namespace tutti::training::planner
