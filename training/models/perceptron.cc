#include "training/models/perceptron.h"

#include "training/models/sizes.h"

namespace tutti::training {
namespace {

void describe(Schema& schema, PerceptronConfig& config) {
  schema.add("widths", config.widths, "width of each hidden layer");
  describe_images(schema, config, "number of image classes");
}

const Described<PerceptronConfig> kPerceptron{"model", "kind", "perceptron", describe};

std::vector<NetworkLayer> layers_of(const PerceptronConfig& config) {
  std::vector<NetworkLayer> layers;
  for (const int64_t width : config.widths) layers.push_back({.outputs = width});
  layers.push_back({.outputs = config.classes});
  return layers;
}

}  // namespace

Perceptron::Perceptron(const PerceptronConfig& config, const MeshPlace& place)
    : MixedNetwork({config.height, config.width, config.channels}, layers_of(config),
                   config.compute, place),
      config_(config) {}

Json Perceptron::configuration() const { return kPerceptron.write(config_); }

ModelKind perceptron_kind() {
  return model_kind<PerceptronConfig>(
      "image classifier with fully connected layers",
      {.inputs = Inputs::images,
       .batch = 128,
       .micro_batch = 64,
       .adam_rate = 1e-3,
       .mixes_layers = true},
      kPerceptron,
      [](const PerceptronConfig& config, const ModelContext& context) -> std::unique_ptr<Model> {
        PerceptronConfig own = config;
        own.compute = context.compute;
        return std::make_unique<Perceptron>(own, context.place);
      });
}

}  // namespace tutti::training
