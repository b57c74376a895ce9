#include "training/hugging_face/config_reader.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/git_lfs.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/checkpoint/files.h"

namespace tutti::training::hugging_face {

ConfigReader::ConfigReader(const Json& config, std::string path)
    : config_(config), path_(std::move(path)) {
  if (!config.is_object()) {
    throw Error(ErrorCode::invalid_argument, "a model configuration is not a JSON object",
                {.where = path_});
  }
}

ConfigReader ConfigReader::open(const std::string& path) {
  const std::string text = read_text(path);
  try {
    return {Json::parse(text), path};
  } catch (const Error& error) {
    if (is_git_lfs_pointer(text)) {
      throw Error(ErrorCode::invalid_argument, cat(path, " is not a model configuration"),
                  {.cause = kGitLfsCause, .remedy = kGitLfsRemedy});
    }
    throw Error(ErrorCode::invalid_argument, cat(path, " is not a model configuration"),
                {.cause = error.what()});
  }
}

const Json* ConfigReader::find(std::string_view field) const {
  const Json* const found = config_.find(field);
  return found == nullptr || found->is_null() ? nullptr : found;
}

template <typename T>
T ConfigReader::get(std::string_view field, std::optional<T> fallback, bool good,
                    const char* what) const {
  const Json* const found = find(field);
  if (found == nullptr && fallback) return *fallback;
  if (found != nullptr && good) return found->get<T>();
  throw Error(ErrorCode::invalid_argument,
              found == nullptr
                  ? cat("the field ", in_quotes(field), " is missing")
                  : cat("the field ", in_quotes(field), " is ", found->words(), ", not ", what),
              {.where = path_});
}

int64_t ConfigReader::whole(std::string_view field, std::optional<int64_t> fallback) const {
  // limit of sizes, so that a product of two sizes fits into 64 bits
  constexpr int64_t kMost = int64_t{1} << 31;
  const Json* const found = find(field);
  const bool good =
      found != nullptr && found->is_natural_number() && found->get<uint64_t>() < uint64_t{kMost};
  return get<int64_t>(field, fallback, good, "a size");
}

double ConfigReader::number(std::string_view field, std::optional<double> fallback) const {
  const Json* const found = find(field);
  return get<double>(field, fallback, found != nullptr && found->is_number(), "a number");
}

bool ConfigReader::truth(std::string_view field, std::optional<bool> fallback) const {
  const Json* const found = find(field);
  return get<bool>(field, fallback, found != nullptr && found->is_boolean(), "true or false");
}

std::string ConfigReader::text(std::string_view field, std::optional<std::string> fallback) const {
  const Json* const found = find(field);
  return get<std::string>(field, std::move(fallback), found != nullptr && found->is_string(),
                          "a string");
}

std::vector<std::string> ConfigReader::texts(std::string_view field) const {
  const Json* const found = find(field);
  const bool good =
      found != nullptr && found->is_array() &&
      std::all_of(found->begin(), found->end(), [](const Json& one) { return one.is_string(); });
  return get<std::vector<std::string>>(field, std::vector<std::string>{}, good,
                                       "a list of strings");
}

ConfigReader ConfigReader::object(std::string_view field) const {
  const Json* const found = find(field);
  return {found == nullptr ? Json::object() : *found,
          cat(path_, ", ", printable(std::string(field)))};
}

void ConfigReader::refuse(std::string_view field, const std::string& wanted) const {
  const Json* const found = find(field);
  throw Error(
      ErrorCode::unsupported,
      cat("the field ", in_quotes(field), " is ", found == nullptr ? "missing" : found->words(),
          ", which is not supported; supported: ", wanted),
      {.where = path_});
}

}  // namespace tutti::training::hugging_face
