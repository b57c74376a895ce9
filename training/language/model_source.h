// Opens a stored model: its values and its configuration.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "training/checkpoint/tensor_source.h"

namespace tutti::training {

struct ModelSource {
  std::unique_ptr<TensorSource> values;
  Json configuration;  // complete configuration; null for a safetensors file without one
  // Folder with files that belong to the model, such as its tokenizer; empty if there is none.
  std::string companions;
};

// Opens the directory of a run, the folder of a step, a Hugging Face directory, or a safetensors
// file. Throws Error as Checkpoint, hugging_face::Directory and ImportedModel do.
ModelSource open_model(const std::string& path);

// Returns true for a Hugging Face directory or a safetensors file: a model that no run has saved.
bool is_from_elsewhere(const std::string& path);

// Returns the model's companion folder, as an argument for make_tokenizer(), if it contains a
// tokenizer's files; otherwise "".
std::string tokenizer_of(const ModelSource& source);

// Returns the end-of-text tokens from the model's generation_config.json or, if it has none, its
// config.json ("eos_token_id": a number, or a list); empty if neither has any.
std::vector<int32_t> ends_of(const ModelSource& source);

}  // namespace tutti::training
