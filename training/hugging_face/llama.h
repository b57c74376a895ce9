// Converts the fields of config.json that several architectures share with Llama.
#pragma once

#include "base/json.h"
#include "training/hugging_face/architecture.h"

namespace tutti::training::hugging_face {

// Convert these fields as Architecture::model_of and Architecture::describe do.
Json llama_model_of(const ConfigReader& config);
void llama_describe(const Json& model, Json& config);

}  // namespace tutti::training::hugging_face
