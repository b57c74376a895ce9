// Reads and validates an untrusted config.json; errors name the field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace tutti::training::hugging_face {

// An object of a config.json. For a missing or null field, an accessor returns its default.
// Accessors throw Error(invalid_argument) for a missing field without a default, and for a value of
// another type.
class ConfigReader {
 public:
  // Reads the object `config`. `path`: path of the file, for errors.
  ConfigReader(const Json& config, std::string path);
  // Reads a file. Throws Error that names the file if it is not a JSON object.
  static ConfigReader open(const std::string& path);

  const Json& json() const { return config_; }
  const std::string& path() const { return path_; }

  bool has(std::string_view field) const { return find(field) != nullptr; }
  int64_t whole(std::string_view field,
                std::optional<int64_t> fallback = {}) const;  // the value must be in [0, 2^31)
  double number(std::string_view field, std::optional<double> fallback = {}) const;
  bool truth(std::string_view field, std::optional<bool> fallback = {}) const;
  std::string text(std::string_view field, std::optional<std::string> fallback = {}) const;
  // an empty list if the field is missing
  std::vector<std::string> texts(std::string_view field) const;
  ConfigReader object(std::string_view field) const;  // an empty object if the field is missing

  // Throws Error(unsupported) that states the value of the field, and the value that the model here
  // supports.
  [[noreturn]] void refuse(std::string_view field, const std::string& wanted) const;

 private:
  const Json* find(std::string_view field) const;
  template <typename T>
  T get(std::string_view field, std::optional<T> fallback, bool good, const char* what) const;

  Json config_;
  std::string path_;
};

}  // namespace tutti::training::hugging_face
