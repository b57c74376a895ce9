// What architectures have that are Llama but for something.
#pragma once

#include "base/json.h"
#include "training/hugging_face/architecture.h"

namespace tutti::training::hugging_face {

// Architecture::model_of and describe of what they share with Llama.
Json llama_model_of(const ConfigReader& config);
void llama_describe(const Json& model, Json& config);

}  // namespace tutti::training::hugging_face
