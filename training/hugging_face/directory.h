// A model in one of Hugging Face's directories: config.json, and its tensors in model.safetensors,
// or, where that is not there, in several files that model.safetensors.index.json names.
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

// The files beside a model's that belong to it: its tokenizer's, and how text is made. Their names,
// as far as they are there.
std::vector<std::string> companions_in(const std::string& directory);

// Whether there is a config.json.
bool is_model_directory(const std::string& path);

// The model here of a config.json, complete. Throws as Directory does.
Json read_model(const ConfigReader& config);

// Safe for files by strangers. Parameters are called "model.NAME", as everywhere.
class Directory : public TensorSource {
 public:
  // Reads config.json and the files' headers. Throws Error(unsupported) for a model that there is
  // not, and Error(invalid_argument) that names what is missing, surplus, of another shape or
  // type, or otherwise wrong, and the file.
  explicit Directory(const std::string& path);

  const std::string& path() const { return path_; }
  // Of the model here, complete.
  const Json& model() const { return model_; }

  std::vector<std::string> names() const override;
  const TensorInfo* find(std::string_view name) const override;
  void read(std::string_view name, int64_t first, Tensor out) const override;

 private:
  struct Entry {
    TensorInfo info;  // as it is here
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
