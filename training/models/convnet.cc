#include "training/models/convnet.h"

#include "base/error.h"
#include "base/text.h"
#include "training/models/sizes.h"

namespace tutti::training {
namespace {

void describe(Schema& schema, ConvnetConfig& config) {
  schema.add("filters", config.filters, "output channels of each convolution");
  schema.add("strides", config.strides, "stride of each convolution (default: 2)");
  schema.add("kernel", config.kernel, "height and width of the convolution kernels");
  schema.add("widths", config.widths, "width of each hidden fully connected layer");
  describe_images(schema, config, "number of image classes");
}

const Described<ConvnetConfig> kConvnet{"model", "kind", "convnet", describe};

constexpr int64_t kMostOfAWindow = 1024;

std::vector<NetworkLayer> layers_of(const ConvnetConfig& config) {
  require_size("number of convolutions", std::ssize(config.filters));
  require_size("kernel size of a convolution", config.kernel);
  if (config.kernel > kMostOfAWindow) {
    throw Error(ErrorCode::invalid_argument,
                cat("the kernels of a convolution cannot have size ", config.kernel),
                {.where = "--kernel", .remedy = cat("use at most ", kMostOfAWindow)});
  }
  if (!config.strides.empty() && config.strides.size() != config.filters.size()) {
    throw Error(ErrorCode::invalid_argument,
                cat("the model has ", config.filters.size(), " convolutions and ",
                    config.strides.size(), " strides"),
                {.where = "--strides", .remedy = "use one stride per convolution, or no strides"});
  }
  std::vector<NetworkLayer> layers;
  for (size_t i = 0; i < config.filters.size(); ++i) {
    layers.push_back({.outputs = config.filters[i],
                      .kernel = config.kernel,
                      .stride = config.strides.empty() ? 2 : config.strides[i]});
  }
  for (const int64_t width : config.widths) layers.push_back({.outputs = width});
  layers.push_back({.outputs = config.classes});
  return layers;
}

}  // namespace

Convnet::Convnet(const ConvnetConfig& config, const MeshPlace& place)
    : MixedNetwork({config.height, config.width, config.channels}, layers_of(config),
                   config.compute, place),
      config_(config) {}

Json Convnet::configuration() const { return kConvnet.write(config_); }

ModelKind convnet_kind() {
  return model_kind<ConvnetConfig>(
      "image classifier with convolutions and fully connected layers",
      {.inputs = Inputs::images,
       .batch = 128,
       .micro_batch = 64,
       .adam_rate = 1e-3,
       .mixes_layers = true},
      kConvnet,
      [](const ConvnetConfig& config, const ModelContext& context) -> std::unique_ptr<Model> {
        ConvnetConfig own = config;
        own.compute = context.compute;
        return std::make_unique<Convnet>(own, context.place);
      });
}

}  // namespace tutti::training
