#include "training/models/registry.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/models/convnet.h"
#include "training/models/gpt.h"
#include "training/models/llama.h"
#include "training/models/mlp_model.h"
#include "training/models/perceptron.h"
#include "training/models/resnet.h"
#include "training/models/unet.h"

namespace tutti::training {

const std::vector<ModelKind>& model_kinds() {
  static const std::vector<ModelKind> kinds = [] {
    std::vector<ModelKind> all = {mlp_kind(), gpt2_kind()};
    std::ranges::move(llama_kinds(), std::back_inserter(all));
    all.push_back(resnet_kind());
    all.push_back(unet_kind());
    all.push_back(perceptron_kind());
    all.push_back(convnet_kind());
    return all;
  }();
  return kinds;
}

namespace {

const ModelKind* found(const std::string& name) {
  const auto kind = std::ranges::find(model_kinds(), name, &ModelKind::name);
  return kind == model_kinds().end() ? nullptr : &*kind;
}

const ModelKind* kind_in(const Json& configuration) {
  const Json* const name = configuration.find("kind");
  return name == nullptr || !name->is_string() ? nullptr : found(*name);
}

}  // namespace

const ModelKind& model_kind_named(const std::string& name) {
  if (const ModelKind* kind = found(name)) return *kind;
  std::vector<std::string> names;
  std::string list;
  for (const ModelKind& kind : model_kinds()) {
    names.push_back(kind.name);
    list += (list.empty() ? "" : ", ") + kind.name;
  }
  const std::string close = nearest(name, names);
  throw Error(ErrorCode::invalid_argument,
              cat("unknown model ", in_quotes(name),
                  close.empty() ? "" : cat(" (did you mean ", close, "?)")),
              {.where = "model.kind", .remedy = "use one of " + list});
}

const ModelKind& kind_of(const Json& configuration) {
  const Json* const name = configuration.find("kind");
  if (name != nullptr && name->is_string()) return model_kind_named(*name);
  throw Error(ErrorCode::invalid_argument, "the model's configuration has no kind",
              {.where = "model.kind", .remedy = "add a name: {\"kind\": \"gpt2\"}"});
}

std::unique_ptr<Model> make_model(const Json& configuration, const ModelContext& context) {
  return kind_of(configuration).make(configuration, context);
}

Json completed_model(const Json& configuration) {
  const ModelKind* const kind = kind_in(configuration);
  return kind == nullptr ? configuration : kind->complete(configuration);
}

Json tensors_of_model(const Json& configuration) {
  Json tensors = configuration;
  if (const ModelKind* const kind = kind_in(configuration)) {
    for (const Field& field : kind->schema->fields()) {
      if (field.role() == kTrainingOnly) tensors.erase(field.key());
    }
  }
  return tensors;
}

}  // namespace tutti::training
