// Converts between Hugging Face's architectures and models of this program: config.json and model
// configuration, names of tensors and of parameters. To add an architecture, write a file with its
// conversion, and add a line to architecture.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "training/hugging_face/config_reader.h"

namespace tutti::training::hugging_face {

struct Architecture {
  std::string class_name;  // such as "LlamaForCausalLM"
  std::string model_type;  // such as "llama"
  std::string kind;        // the kind of model in models/registry.h
  // Prefix of parameter names in tensor names. The name of an untied output layer has no prefix.
  std::string prefix;
  std::string embedding;  // name of the parameter that a tied output layer shares
  // Returns the model's configuration, without its kind and context. Throws Error(unsupported) for
  // features that the model here does not have.
  Json (*model_of)(const ConfigReader& config);
  // Returns the reason why the architecture cannot represent `model`, a complete configuration of
  // its kind; or "".
  std::string (*mismatch)(const Json& model);
  // Sets the fields of config.json that describe `model`, a complete configuration. Throws
  // Error(unsupported) for a model that the architecture cannot represent.
  void (*describe)(const Json& model, Json& config);
  // Returns true if a parameter is stored transposed.
  bool (*is_transposed)(std::string_view parameter);
  // Returns true for a tensor that is not a parameter, such as a causal mask; files of earlier
  // versions of transformers contain such tensors. `name`: the tensor's name without the prefix.
  bool (*is_constant)(std::string_view name);

  std::string tensor_name(std::string_view parameter) const;
  std::string_view parameter_name(std::string_view tensor) const;
};

inline constexpr std::string_view kOutputLayer = "lm_head.weight";

// Returns the architecture that a config.json names. If it is unknown, throws Error(unsupported)
// that lists the known architectures.
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
