#include "training/hugging_face/architecture.h"

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/models/registry.h"

namespace tutti::training::hugging_face {
namespace {

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all = {gpt2(), llama(), mistral()};
  return all;
}

std::string known() {
  std::string text;
  for (const Architecture& one : architectures()) {
    text += cat(text.empty() ? "" : ", ", one.class_name);
  }
  return text;
}

}  // namespace

std::string Architecture::tensor_name(std::string_view parameter) const {
  return parameter == kOutputLayer ? std::string(parameter) : cat(prefix, parameter);
}

std::string_view Architecture::parameter_name(std::string_view tensor) const {
  if (tensor.starts_with(prefix)) tensor.remove_prefix(prefix.size());
  return tensor;
}

const Architecture& architecture_of(const ConfigReader& config) {
  const std::vector<std::string> classes = config.texts("architectures");
  const std::string type = config.text("model_type", "");
  for (const Architecture& one : architectures()) {
    const bool is_it = std::ranges::find(classes, one.class_name) != classes.end();
    if (is_it || (classes.empty() && type == one.model_type)) return one;
  }
  const std::string name = classes.empty() ? type : classes.front();
  throw Error(ErrorCode::unsupported,
              name.empty() ? "the model's architecture is not said"
                           : cat("there is no model for the architecture ", in_quotes(name)),
              {.where = config.path(), .remedy = cat("give a model of one of ", known())});
}

const Architecture& architecture_of_model(const Json& model) {
  const std::string kind = kind_of(model).name;
  std::string misfits;
  for (const Architecture& one : architectures()) {
    if (one.kind != kind) continue;
    const std::string misfit = one.misfit(model);
    if (misfit.empty()) return one;
    misfits += cat(misfits.empty() ? "" : "; ", one.class_name, " ", misfit);
  }
  if (!misfits.empty()) {
    throw Error(ErrorCode::unsupported, cat("Hugging Face has no architecture for this ", kind),
                {.cause = misfits});
  }
  throw Error(ErrorCode::unsupported,
              cat("Hugging Face has no architecture for the model ", in_quotes(kind)),
              {.cause = cat("there are only ", known())});
}

}  // namespace tutti::training::hugging_face
