#include "training/byte_model.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/modules/gelu.h"
#include "training/modules/linear.h"

namespace tutti::training {
namespace {

// GELU halves the variance and then some; this gain keeps it through the layers.
constexpr float kHiddenGain = 1.5f;
// Small first logits: the loss starts at log 256.
constexpr float kOutputGain = 0.1f;

void check(const ByteModelConfig& config) {
  const auto require = [](std::string_view what, int64_t value) {
    if (value < 1) {
      throw Error(ErrorCode::invalid_argument, cat("the model's ", what, " cannot be ", value),
                  {.remedy = "give at least 1"});
    }
  };
  require("context", config.context);
  require("embedding width", config.embedding);
  require("hidden width", config.hidden);
  require("number of hidden layers", config.layers);
}

}  // namespace

ByteModel::ByteModel(const ByteModelConfig& config) : config_(config) {
  check(config);
  embedding_ = std::make_unique<Embedding>(config.context, config.embedding);
  int64_t width = config.context * config.embedding;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    modules_.push_back(std::make_unique<Linear>(width, config.hidden, kHiddenGain));
    modules_.push_back(std::make_unique<Gelu>());
    width = config.hidden;
  }
  modules_.push_back(std::make_unique<Linear>(width, Embedding::kBytes, kOutputGain));
}

std::vector<std::pair<std::string, Parametrized*>> ByteModel::named_parts() const {
  std::vector<std::pair<std::string, Parametrized*>> parts = {{"embedding", embedding_.get()}};
  for (size_t i = 0; i < modules_.size(); ++i) {
    parts.emplace_back(cat("modules.", i), modules_[i].get());
  }
  return parts;
}

ParameterLayout ByteModel::layout() const {
  std::vector<ParameterSpec> specs;
  for (const auto& [name, part] : named_parts()) {
    for (const ParameterSpec& spec : part->parameter_specs()) {
      specs.push_back({name + "." + spec.name, spec.shape});
    }
  }
  return make_layout(specs);
}

void ByteModel::bind(const Parameters& parameters) {
  size_t slot = 0;
  for (const auto& [name, part] : named_parts()) {
    std::vector<Parameter> own;
    for (size_t i = part->parameter_specs().size(); i > 0; --i)
      own.push_back(parameters.at(slot++));
    part->bind(own);
  }
}

void ByteModel::initialize(uint64_t seed) {
  uint64_t stream = 0;
  for (const auto& [name, part] : named_parts()) part->initialize(seed, stream++);
}

double ByteModel::forward(const Batch& batch) {
  ConstMatrix values = embedding_->forward(batch.contexts);
  for (const auto& module : modules_) values = module->forward(values);
  return loss_.forward(values, batch.targets);
}

void ByteModel::backward(float scale) {
  ConstMatrix gradient = loss_.backward(scale);
  for (auto module = modules_.rbegin(); module != modules_.rend(); ++module) {
    gradient = (*module)->backward(gradient);
  }
  embedding_->backward_weight(gradient);
}

}  // namespace tutti::training
