#include "training/hugging_face/architecture.h"

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/models/registry.h"

namespace tutti::training::hugging_face {
namespace {

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all = {gpt2(),     llama(),    mistral(), mixtral(),
                                                qwen2moe(), qwen3moe(), olmoe()};
  return all;
}

// Returns the part of a known architecture that is not supported; empty for other architectures.
std::string missing_part(std::string_view name) {
  const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
  if (begins("DeepseekV2") || begins("DeepseekV3") || begins("deepseek_v")) {
    return "its latent attention is not supported (its routing is: mixtral with --router-scores, "
           "--expert-groups and --shared-hidden)";
  }
  if (begins("GptOss") || begins("gpt_oss")) {
    return "its attention sinks, expert biases and clamped SwiGLU are not supported";
  }
  if (begins("SwitchTransformers") || begins("switch_transformers")) {
    return "it is an encoder-decoder model (its routing is supported: --model switch)";
  }
  return "";
}

std::string known() {
  std::string text;
  for (const Architecture& one : architectures()) {
    text += cat(text.empty() ? "" : ", ", one.class_name);
  }
  return text;
}

}  // namespace

std::string Architecture::tensor_name(std::string_view parameter) const {
  return parameter == kOutputLayer ? std::string(parameter) : cat(prefix, parameter);
}

std::string_view Architecture::parameter_name(std::string_view tensor) const {
  if (tensor.starts_with(prefix)) tensor.remove_prefix(prefix.size());
  return tensor;
}

const Architecture& architecture_of(const ConfigReader& config) {
  const std::vector<std::string> classes = config.texts("architectures");
  const std::string type = config.text("model_type", "");
  for (const Architecture& one : architectures()) {
    const bool is_it = std::ranges::find(classes, one.class_name) != classes.end();
    if (is_it || (classes.empty() && type == one.model_type)) return one;
  }
  const std::string name = classes.empty() ? type : classes.front();
  throw Error(ErrorCode::unsupported,
              name.empty() ? "the model's architecture is missing"
                           : cat("the architecture ", in_quotes(name), " is not supported"),
              {.where = config.path(),
               .cause = missing_part(name),
               .remedy = cat("use a model of one of ", known())});
}

const Architecture& architecture_of_model(const Json& model) {
  const std::string kind = kind_of(model).name;
  std::string mismatches;
  for (const Architecture& one : architectures()) {
    if (one.kind != kind) continue;
    const std::string mismatch = one.mismatch(model);
    if (mismatch.empty()) return one;
    mismatches += cat(mismatches.empty() ? "" : "; ", one.class_name, " ", mismatch);
  }
  if (!mismatches.empty()) {
    throw Error(ErrorCode::unsupported, cat("Hugging Face has no architecture for this ", kind),
                {.cause = mismatches});
  }
  throw Error(ErrorCode::unsupported,
              cat("Hugging Face has no architecture for the model ", in_quotes(kind)),
              {.cause = cat("it supports only ", known())});
}

}  // namespace tutti::training::hugging_face
