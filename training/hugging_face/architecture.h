// Hugging Face's architectures that have a counterpart here, and the conversions between them:
// config.json and model configuration, names of tensors and of parameters. To add one, write a file
// with its conversion, and add a line to architecture.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "training/hugging_face/config_reader.h"

namespace tutti::training::hugging_face {

struct Architecture {
  std::string class_name;  // "LlamaForCausalLM"
  std::string model_type;  // "llama"
  std::string kind;        // in models/registry.h
  // Prefix of parameter names in tensor names, except for a separate output layer.
  std::string prefix;
  std::string embedding;  // the parameter that a tied output layer shares
  // Returns the model's configuration, without its kind and context. Throws Error(unsupported) for
  // features that the model here does not have.
  Json (*model_of)(const ConfigReader& config);
  // Returns the reason why it cannot represent `model`, a complete configuration of its kind; or
  // "".
  std::string (*misfit)(const Json& model);
  // Sets the fields of config.json that describe `model`, a complete configuration. Throws
  // Error(unsupported) for a model that the architecture cannot represent.
  void (*describe)(const Json& model, Json& config);
  // True if a parameter is stored transposed.
  bool (*is_transposed)(std::string_view parameter);
  // True for non-parameters in files of earlier versions (names without the prefix).
  bool (*is_constant)(std::string_view name);

  std::string tensor_name(std::string_view parameter) const;
  std::string_view parameter_name(std::string_view tensor) const;
};

inline constexpr std::string_view kOutputLayer = "lm_head.weight";

// Throws Error(unsupported) that lists the known ones.
const Architecture& architecture_of(const ConfigReader& config);
// Returns the first architecture that can represent `model`, a complete configuration. Throws
// Error(unsupported) if there is none.
const Architecture& architecture_of_model(const Json& model);

Architecture gpt2();
Architecture llama();
Architecture mistral();
Architecture mixtral();
Architecture qwen2moe();
Architecture qwen3moe();
Architecture olmoe();

}  // namespace tutti::training::hugging_face
