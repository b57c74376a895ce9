#include "training/models/gpt_description.h"

#include <charconv>
#include <map>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {
namespace {

[[noreturn]] void refuse(const std::string& description) {
  throw Error(ErrorCode::invalid_argument, cat("this is no GPT: \"", description, "\""),
              {.remedy = "give a checkpoint of tutti train --model gpt2"});
}

}  // namespace

GptConfig gpt_config_from(const std::string& description) {
  const std::vector<std::string> words = split(description, ' ');
  if (words.empty() || words.front() != "gpt") refuse(description);
  std::map<std::string, std::string, std::less<>> values;
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == std::string::npos) refuse(description);
    values[words[i].substr(0, equals)] = words[i].substr(equals + 1);
  }
  const auto number = [&](std::string_view name) {
    const auto found = values.find(name);
    int64_t value = 0;
    if (found == values.end()) refuse(description);
    const std::string& text = found->second;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) refuse(description);
    return value;
  };
  const auto is = [&](std::string_view name, std::string_view value) {
    const auto found = values.find(name);
    if (found == values.end()) refuse(description);
    return found->second == value;
  };
  GptConfig config;
  config.layers = number("layers");
  config.heads = number("heads");
  config.width = number("width");
  config.context = number("context");
  config.vocabulary = number("vocabulary");
  config.hidden = number("hidden");
  config.norm = is("norm", "rms") ? NormKind::rms : NormKind::layer;
  config.mlp = is("mlp", "swiglu") ? MlpKind::swiglu : MlpKind::gelu;
  config.positions = is("positions", "rope") ? Positions::rope : Positions::learned;
  config.tied = number("tied") != 0;
  config.bias = number("bias") != 0;
  return config;
}

}  // namespace tutti::training
