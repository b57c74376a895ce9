#include "training/language/model_source.h"

#include <filesystem>

#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/exchange.h"
#include "training/checkpoint/step_directory.h"
#include "training/hugging_face/config_reader.h"
#include "training/hugging_face/directory.h"
#include "training/hugging_face/import.h"
#include "training/models/registry.h"

namespace tutti::training {
namespace {

namespace fs = std::filesystem;

// Returns the model configuration that `tutti export` writes into a file's metadata; null for other
// files.
Json configuration_in(const ImportedModel& file) {
  const auto found = file.metadata().find("model");
  if (found == file.metadata().end()) return {};
  return completed_model(found->second.starts_with('{') ? Json::parse(found->second)
                                                        : Json(found->second));
}

}  // namespace

bool is_from_elsewhere(const std::string& path) {
  std::error_code error;
  return hugging_face::is_model_directory(path) || fs::is_regular_file(path, error);
}

ModelSource open_model(const std::string& path) {
  if (hugging_face::is_model_directory(path)) {
    auto directory = std::make_unique<hugging_face::Directory>(path);
    Json configuration = directory->model();
    return {std::move(directory), std::move(configuration), path};
  }
  if (is_from_elsewhere(path)) {
    auto file = std::make_unique<ImportedModel>(path);
    Json configuration = configuration_in(*file);
    return {std::move(file), std::move(configuration), ""};
  }
  auto checkpoint = std::make_unique<Checkpoint>(Checkpoint::open(path));
  Json configuration = completed_model(checkpoint->manifest().model);
  const std::string companions = hugging_face::companions_of_step(checkpoint->path());
  return {std::move(checkpoint), std::move(configuration), companions};
}

std::string tokenizer_of(const ModelSource& source) {
  std::error_code error;
  const fs::path folder = source.companions;
  const auto has = [&](const char* name) { return fs::is_regular_file(folder / name, error); };
  const bool found = has("tokenizer.json") || (has("vocab.json") && has("merges.txt"));
  return !source.companions.empty() && found ? source.companions : "";
}

std::vector<int32_t> ends_of(const ModelSource& source) {
  if (source.companions.empty()) return {};
  for (const char* const name : {"generation_config.json", "config.json"}) {
    const fs::path path = fs::path(source.companions) / name;
    std::error_code error;
    if (!fs::is_regular_file(path, error)) continue;
    const Json config = hugging_face::ConfigReader::open(path).json();
    const Json* const ends = config.find("eos_token_id");
    if (ends == nullptr || ends->is_null()) continue;
    if (ends->is_number()) return {ends->get<int32_t>()};
    return ends->get<std::vector<int32_t>>();
  }
  return {};
}

}  // namespace tutti::training
