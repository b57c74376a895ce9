#include "training/model.h"

#include "base/text.h"

namespace tutti::training {

std::string in_words(const Json& configuration) {
  if (!configuration.is_object())
    return configuration.is_string() ? std::string(configuration) : "";
  std::string text;
  for (const auto& [name, value] : configuration.items()) {
    std::string shown = value.is_string() ? std::string(value) : value.dump();
    if (value.is_array()) shown = shown.substr(1, shown.size() - 2);
    text += text.empty() && name == "kind" ? shown : cat(text.empty() ? "" : " ", name, '=', shown);
  }
  return text;
}

}  // namespace tutti::training
