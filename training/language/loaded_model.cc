#include "training/language/loaded_model.h"

#include <algorithm>
#include <span>
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
    throw Error(
        ErrorCode::invalid_argument, cat(path, " does not describe its model"),
        {.remedy = "use a run directory, a directory with a config.json, or a file of `tutti "
                   "export`"});
  }
  std::unique_ptr<Model> model = make_model(configuration);
  if (auto* const decoder = dynamic_cast<Decoder*>(model.get())) {
    static_cast<void>(model.release());
    return std::unique_ptr<Decoder>(decoder);
  }
  throw Error(ErrorCode::invalid_argument,
              cat("this model is not a transformer language model: ",
                  printable(in_words(configuration), 200)),
              {.where = path, .remedy = "use gpt2, llama or a mixture of experts such as mixtral"});
}

// Reads a matrix some rows at a time, and writes them in quantized blocks.
void read_quantized(const TensorSource& source, const std::string& name, WeightFormat format,
                    Tensor rows, int64_t cols) {
  constexpr int64_t kValues = 1 << 18;
  const int64_t most = std::max<int64_t>(1, kValues / std::max<int64_t>(1, cols));
  std::vector<float> values(static_cast<size_t>(std::min(most, rows.rows) * cols));
  for (int64_t first = 0; first < rows.rows; first += most) {
    const int64_t count = std::min(most, rows.rows - first);
    source.read(name, first * cols, tensor_at(values.data(), DType::f32, 1, count * cols));
    for (int64_t i = 0; i < count; ++i) {
      quantize_row(
          format,
          std::span(values).subspan(static_cast<size_t>(i * cols), static_cast<size_t>(cols)),
          {rows.at(first + i, 0), static_cast<size_t>(rows.cols)});
    }
  }
}

}  // namespace

LoadedModel::LoadedModel(const std::string& path, const LoadOptions& options) {
  const ModelSource source = open_model(path);
  tokenizer_ = tokenizer_of(source);
  ends_ = ends_of(source);
  Json configuration = source.configuration;
  if (const Json* const own = configuration.is_null() ? nullptr : configuration.find("context")) {
    configuration["context"] =
        options.context.value_or(std::min(own->get<int64_t>(), options.needed));
  }
  model_ = language_model(path, configuration);
  ParameterTable& table = model_->parameters();
  for (int index = 0; index < table.size(); ++index) {
    const ParameterSpec& spec = table.specs()[static_cast<size_t>(index)];
    const std::string name = cat(kModelPrefix, spec.name);
    const TensorInfo* const info = source.values->find(name);
    if (info != nullptr && info->shape != spec.shape) {
      throw Error(
          ErrorCode::invalid_argument,
          cat("the tensor ", in_quotes(name), " has a different shape from that of the model"),
          {.where = path});
    }
    const int64_t rows = spec.shape.size() < 2 ? 1 : spec.shape.front();
    const int64_t cols = rows == 0 ? 0 : spec.count() / rows;
    if (options.weights && spec.is_quantizable) {
      const Tensor blocks = memory_.take(DType::u8, rows, bytes_of_row(*options.weights, cols));
      read_quantized(*source.values, name, *options.weights, blocks, cols);
      quantized_.push_back({*options.weights, blocks.data, rows, cols});
      table.set_quantized(index, &quantized_.back());
      weight_bytes_ += static_cast<int64_t>(blocks.bytes());
      continue;
    }
    const Tensor value = memory_.take(options.dtype, rows, cols);
    source.values->read(name, 0, value.reshaped(1, value.size()));
    table.set_value(index, value);
    weight_bytes_ += static_cast<int64_t>(value.bytes());
  }
  for (const NamedBuffer& buffer : model_->buffers()) {
    const TensorInfo* const info = find_buffer(*source.values, buffer.name);
    if (info == nullptr) continue;  // missing in the file: keep the initial values
    source.values->read(info->name, 0,
                        tensor_at(buffer.values.data(), DType::f32, 1, std::ssize(buffer.values)));
  }
}

}  // namespace tutti::training
