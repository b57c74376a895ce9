#include "training/language/loaded_model.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/checkpoint/initial.h"
#include "training/language/model_source.h"
#include "training/models/registry.h"

namespace tutti::training {
namespace {

std::unique_ptr<Decoder> language_model(const std::string& path, const Json& configuration) {
  if (configuration.is_null()) {
    throw Error(ErrorCode::invalid_argument, cat(path, " does not say which model it has"),
                {.remedy = "give a run's directory, one with a config.json, or a file of `tutti "
                           "export`"});
  }
  std::unique_ptr<Model> model = make_model(configuration);
  if (auto* const decoder = dynamic_cast<Decoder*>(model.get())) {
    static_cast<void>(model.release());
    return std::unique_ptr<Decoder>(decoder);
  }
  throw Error(ErrorCode::invalid_argument,
              cat("this is no language model: ", printable(in_words(configuration), 200)),
              {.where = path, .remedy = "give gpt2, llama or one of its kin with experts"});
}

}  // namespace

LoadedModel::LoadedModel(const std::string& path, std::optional<int64_t> context, DType dtype,
                         int64_t needed) {
  const ModelSource source = open_model(path);
  tokenizer_ = tokenizer_of(source);
  ends_ = ends_of(source);
  Json configuration = source.configuration;
  if (const Json* const own = configuration.is_null() ? nullptr : configuration.find("context")) {
    configuration["context"] = context.value_or(std::min(own->get<int64_t>(), needed));
  }
  model_ = language_model(path, configuration);
  ParameterTable& table = model_->parameters();
  for (int index = 0; index < table.size(); ++index) {
    const ParameterSpec& spec = table.specs()[static_cast<size_t>(index)];
    const std::string name = cat(kModelPrefix, spec.name);
    const TensorInfo* const info = source.values->find(name);
    if (info != nullptr && info->shape != spec.shape) {
      throw Error(ErrorCode::invalid_argument,
                  cat("the tensor ", in_quotes(name), " has another shape than the model's"),
                  {.where = path});
    }
    const int64_t rows = spec.shape.size() < 2 ? 1 : spec.shape.front();
    const Tensor value = memory_.take(dtype, rows, rows == 0 ? 0 : spec.count() / rows);
    source.values->read(name, 0, value.reshaped(1, value.size()));
    table.set_value(index, value);
  }
  for (const NamedBuffer& buffer : model_->buffers()) {
    const TensorInfo* const info = find_buffer(*source.values, buffer.name);
    if (info == nullptr) continue;  // keep the initial values
    source.values->read(info->name, 0,
                        tensor_at(buffer.values.data(), DType::f32, 1, std::ssize(buffer.values)));
  }
}

}  // namespace tutti::training
