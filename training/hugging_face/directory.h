// Reads a model in Hugging Face's directory format: config.json, and its tensors in
// model.safetensors, or in several files that model.safetensors.index.json lists.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "training/checkpoint/safetensors.h"
#include "training/checkpoint/tensor_source.h"
#include "training/hugging_face/architecture.h"

namespace tutti::training::hugging_face {

inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kWeightsFile = "model.safetensors";
inline constexpr const char* kIndexFile = "model.safetensors.index.json";

// Returns the names of existing files that belong to a model in the directory: tokenizer and
// generation config.
std::vector<std::string> companions_in(const std::string& directory);

// Returns true if the directory has a config.json.
bool is_model_directory(const std::string& path);

// Returns the complete model configuration for a config.json. Throws as Directory does.
Json read_model(const ConfigReader& config);

// A model in Hugging Face's directory format. Safe for untrusted files. Parameters are named
// "model.NAME", as in other sources.
class Directory : public TensorSource {
 public:
  // Reads config.json and the headers of the tensors' files. Throws Error(unsupported) for an
  // unknown model. Throws Error(invalid_argument) that names the file and the tensor that is
  // missing, surplus, of another shape or type, or otherwise wrong.
  explicit Directory(const std::string& path);

  const std::string& path() const { return path_; }
  // Returns the complete model configuration.
  const Json& model() const { return model_; }

  std::vector<std::string> names() const override;
  const TensorInfo* find(std::string_view name) const override;
  void read(std::string_view name, int64_t first, Tensor out) const override;

 private:
  struct Entry {
    TensorInfo info;  // name, shape and type after conversion
    const StoredTensor* stored = nullptr;
    bool transposed = false;
  };

  void open_files();
  void match_parameters(const Architecture& architecture);
  bool repeats(const StoredTensor& output, const std::string& embedding) const;

  std::string path_;
  Json model_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace tutti::training::hugging_face
