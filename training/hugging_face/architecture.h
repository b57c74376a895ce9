// Which of Hugging Face's architectures are models here, and how one becomes the other: config.json
// and a model's configuration, names of tensors and of parameters. A new architecture is a file
// that says so, and a line in architecture.cc.
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
  std::string kind;        // of models/registry.h
  // A parameter's tensor has the parameter's name behind this, but for an output layer of its own.
  std::string prefix;
  std::string embedding;  // the parameter that an output layer may share
  // The model's configuration, without its kind and context. Throws Error(unsupported) for what the
  // model here cannot compute.
  Json (*model_of)(const ConfigReader& config);
  // Why it cannot hold `model`, a complete configuration of its kind; empty where it can.
  std::string (*misfit)(const Json& model);
  // Sets the fields of config.json by which `model`, a complete configuration, is made again.
  // Throws Error(unsupported) for a model that the architecture cannot be.
  void (*describe)(const Json& model, Json& config);
  // Whether a parameter is stored as its transpose.
  bool (*is_transposed)(std::string_view parameter);
  // What files of earlier versions have besides parameters (names without the prefix).
  bool (*is_constant)(std::string_view name);

  std::string tensor_name(std::string_view parameter) const;
  std::string_view parameter_name(std::string_view tensor) const;
};

inline constexpr std::string_view kOutputLayer = "lm_head.weight";

// Throws Error(unsupported) that names those that there are.
const Architecture& architecture_of(const ConfigReader& config);
// The first architecture that can hold `model`, a complete configuration. Throws Error(unsupported)
// where there is none.
const Architecture& architecture_of_model(const Json& model);

Architecture gpt2();
Architecture llama();
Architecture mistral();
Architecture mixtral();
Architecture qwen2moe();
Architecture qwen3moe();
Architecture olmoe();

}  // namespace tutti::training::hugging_face
