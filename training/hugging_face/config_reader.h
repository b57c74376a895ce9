// Validating reader of an untrusted config.json; errors name the field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace tutti::training::hugging_face {

// A missing or null field has its default. A missing field without a default, and a value of
// another type, throw Error(invalid_argument).
class ConfigReader {
 public:
  // `config` is an object. `path`: of the file, for errors.
  ConfigReader(const Json& config, std::string path);
  // Reads a file. Throws Error that names it if it is not a JSON object.
  static ConfigReader open(const std::string& path);

  const Json& json() const { return config_; }
  const std::string& path() const { return path_; }

  bool has(std::string_view field) const { return find(field) != nullptr; }
  int64_t whole(std::string_view field,
                std::optional<int64_t> otherwise = {}) const;  // not below 0
  double number(std::string_view field, std::optional<double> otherwise = {}) const;
  bool truth(std::string_view field, std::optional<bool> otherwise = {}) const;
  std::string text(std::string_view field, std::optional<std::string> otherwise = {}) const;
  std::vector<std::string> texts(std::string_view field) const;  // default: none
  ConfigReader object(std::string_view field) const;             // default: an empty one

  // Throws Error(unsupported): the model here does not support this value.
  [[noreturn]] void refuse(std::string_view field, const std::string& wanted) const;

 private:
  const Json* find(std::string_view field) const;
  template <typename T>
  T get(std::string_view field, std::optional<T> otherwise, bool good, const char* what) const;

  Json config_;
  std::string path_;
};

}  // namespace tutti::training::hugging_face
