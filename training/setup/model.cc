#include "training/setup/model.h"

#include "training/models/gpt.h"
#include "training/models/mlp_model.h"
#include "training/models/resnet.h"

namespace tutti::training {
namespace {

GptConfig gpt_config(const ModelOptions& options, bool selective) {
  GptConfig config;
  config.layers = options.layers.value_or(config.layers);
  config.heads = options.heads.value_or(config.heads);
  config.width = options.width.value_or(config.width);
  config.context = options.context.value_or(config.context);
  config.vocabulary = options.vocabulary.value_or(config.vocabulary);
  config.hidden = options.hidden.value_or(config.hidden);
  config.norm = options.norm == "rms" ? NormKind::rms : NormKind::layer;
  config.mlp = options.mlp == "swiglu" ? MlpKind::swiglu : MlpKind::gelu;
  config.positions = options.positions == "rope" ? Positions::rope : Positions::learned;
  config.tied = !options.untied;
  config.bias = !options.no_bias;
  config.dropout = options.dropout;
  config.selective_recomputation = selective;
  return config;
}

}  // namespace

int64_t default_micro_batch(const ModelOptions& options) {
  return options.is_gpt() ? 8 : options.is_resnet() ? 64 : 32;
}

int64_t context_of(const ModelOptions& options) {
  return options.context.value_or(options.is_gpt() ? 128 : 8);
}

std::unique_ptr<Model> make_model(const RunOptions& options, StatisticsReducer* reducer) {
  const ModelOptions& model = options.model;
  if (model.is_resnet()) {
    ResNetConfig config = model.images;
    config.blocks = model.blocks;
    config.widths = model.widths;
    return std::make_unique<ResNet>(config, model.sync_batch_norm ? reducer : nullptr);
  }
  if (model.is_gpt()) {
    return std::make_unique<Gpt>(gpt_config(model, options.recompute == "selective"));
  }
  MlpModelConfig config;
  config.context = model.context.value_or(config.context);
  config.layers = model.layers.value_or(config.layers);
  config.hidden = model.hidden.value_or(config.hidden);
  config.embedding = model.embedding.value_or(config.embedding);
  config.vocabulary = model.vocabulary.value_or(config.vocabulary);
  return std::make_unique<MlpModel>(config);
}

}  // namespace tutti::training
