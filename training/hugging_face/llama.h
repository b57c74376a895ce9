// Converts the fields of config.json that several architectures share with Llama.
#pragma once

#include "base/json.h"
#include "training/hugging_face/architecture.h"

namespace tutti::training::hugging_face {

// Values of fields that a configuration lacks.
struct LlamaDefaults {
  double rope_base = 10000;
  double norm_epsilon = 1e-6;
};

// Convert these fields as Architecture::model_of and Architecture::describe do.
Json llama_model_of(const ConfigReader& config, const LlamaDefaults& defaults = {});
void llama_describe(const Json& model, Json& config);

}  // namespace tutti::training::hugging_face
