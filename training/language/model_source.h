// A model that is stored somewhere: its values, and what it is.
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
  Json configuration;  // complete; null where a file does not say
  // The folder of what came with the model, such as its tokenizer; empty: there is none.
  std::string companions;
};

// What is at the path: the directory of a run or a step of it, one of Hugging Face's directories,
// or a safetensors file. Throws Error as Checkpoint, hugging_face::Directory and ImportedModel do.
ModelSource open_model(const std::string& path);

// Whether it is a directory of Hugging Face's, or a file: something that no run has saved.
bool is_from_elsewhere(const std::string& path);

// Where files of tokenizers are among a model's companions, what make_tokenizer() takes; else
// empty.
std::string tokenizer_of(const ModelSource& source);

// The tokens that end a text, as the model's generation_config.json or else its config.json says
// ("eos_token_id": one, or a list); empty: nothing says.
std::vector<int32_t> ends_of(const ModelSource& source);

}  // namespace tutti::training
