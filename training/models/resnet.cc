#include "training/models/resnet.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"
#include "training/models/normalized_convolution.h"
#include "training/models/sizes.h"
#include "training/modules/features.h"
#include "training/modules/linear.h"
#include "training/modules/loss.h"
#include "training/modules/pooling.h"
#include "training/modules/slots.h"
#include "training/parallel/convert_layout.h"

namespace tutti::training {
namespace {

ResNetConfig checked(const ResNetConfig& config) {
  require_images(config);
  require_size("number of stages", std::ssize(config.blocks));
  for (const int64_t blocks : config.blocks) require_size("number of blocks in a stage", blocks);
  for (const int64_t width : config.widths) require_size("width", width);
  if (config.blocks.size() != config.widths.size()) {
    throw Error(ErrorCode::invalid_argument,
                cat("the model has ", config.blocks.size(), " stages and ", config.widths.size(),
                    " widths"),
                {.remedy = "specify a number of blocks and a width for each stage"});
  }
  return config;
}

void describe(Schema& schema, ResNetConfig& config) {
  schema.add("blocks", config.blocks, "number of blocks of each stage").between(0, kMostLayers);
  schema.add("widths", config.widths, "channels of each stage");
  schema
      .add("sync_bn", config.sync_batch_norm,
           "compute batch statistics over all ranks (synchronized batch normalization)")
      .role(kTrainingOnly);
  schema
      .add("zero_last_gain", config.zero_last_gain,
           "initialize the last gain of each block to zero")
      .flag("")
      .role(kTrainingOnly);
  describe_images(schema, config, "number of image classes");
}

const Described<ResNetConfig> kResNet{"model", "kind", "resnet", describe};

ImageShape image_of(const ResNetConfig& config) {
  return {config.height, config.width, config.channels};
}

class StemUnit : public Unit {
 public:
  StemUnit(ParameterTable& table, const ResNetConfig& config, StatisticsReducer* reducer)
      : image_(image_of(config)),
        grid_(ImageGrid::of(table.mesh())),
        layer_(
            table, "conv1", "bn1", image_,
            {.outputs = config.widths.front(), .padding = 1, .spatial = spatial_of(table.mesh())},
            {.relu = true, .reducer = reducer}) {}

  const Convolution& convolution() const { return layer_.convolution(); }
  std::vector<NamedBuffer> buffers() { return layer_.buffers(); }
  std::string name() const override { return "stem"; }
  OutputShape output_shape() const override { return {1, convolution().output_size()}; }

  Tensor forward(Pass& pass, ConstTensor) override {
    return layer_.forward(pass, tile_of_features(pass, image_, grid_), saved_[pass.slot]);
  }

  Tensor backward(Pass& pass, ConstTensor output_gradient) override {
    layer_.backward_first(pass, output_gradient, saved_[pass.slot]);
    return {};
  }

 private:
  ImageShape image_;
  ImageGrid grid_;
  NormalizedConvolution layer_;
  Slots<NormalizedConvolution::Saved> saved_;
};

struct BlockOptions {
  int64_t width = 0;
  int64_t stride = 1;
  bool zero_last_gain = true;
  StatisticsReducer* reducer = nullptr;
};

class ResidualUnit : public Unit {
 public:
  ResidualUnit(ParameterTable& table, const std::string& name, const ImageShape& input,
               const BlockOptions& options)
      : name_(name),
        first_(table, name + ".conv1", name + ".bn1", input,
               {.outputs = options.width,
                .stride = options.stride,
                .padding = 1,
                .spatial = spatial_of(table.mesh())},
               {.relu = true, .reducer = options.reducer}),
        second_(table, name + ".conv2", name + ".bn2", first_.convolution().output(),
                {.outputs = options.width, .padding = 1, .spatial = spatial_of(table.mesh())},
                {.zero_gain = options.zero_last_gain, .reducer = options.reducer}) {
    if (output() != input) {
      shortcut_.emplace(table, name + ".downsample.0", name + ".downsample.1", input,
                        ConvolutionOptions{.outputs = options.width,
                                           .kernel = 1,
                                           .stride = options.stride,
                                           .spatial = spatial_of(table.mesh())},
                        BatchNormOptions{.reducer = options.reducer});
    }
  }

  ImageShape output() const { return second_.convolution().output(); }
  void append_windows(std::vector<const TiledWindows*>& all) const {
    all.push_back(&first_.convolution().windows());
    all.push_back(&second_.convolution().windows());
    if (shortcut_) all.push_back(&shortcut_->convolution().windows());
  }
  double multiplications() const {
    return first_.convolution().multiplications() + second_.convolution().multiplications() +
           (shortcut_ ? shortcut_->convolution().multiplications() : 0);
  }
  std::vector<NamedBuffer> buffers() {
    std::vector<NamedBuffer> all = first_.buffers();
    std::ranges::copy(second_.buffers(), std::back_inserter(all));
    if (shortcut_) std::ranges::copy(shortcut_->buffers(), std::back_inserter(all));
    return all;
  }
  std::string name() const override { return name_; }
  OutputShape output_shape() const override { return {1, second_.convolution().output_size()}; }

  Tensor forward(Pass& pass, ConstTensor input) override {
    Saved& saved = saved_[pass.slot];
    const Tensor middle = first_.forward(pass, input, saved.first);
    const Tensor output = second_.forward(pass, middle, saved.second);
    ConstTensor side = input;
    if (shortcut_) side = shortcut_->forward(pass, input, saved.shortcut);
    // The sum overwrites the output of bn2, because backward of bn2, which has no ReLU, does not
    // read this output.
    add(output, side, output);
    relu(output, output);
    saved.output = output;
    return output;
  }

  Tensor backward(Pass& pass, ConstTensor output_gradient) override {
    Saved& saved = saved_[pass.slot];
    const Tensor gradient =
        pass.arena.take(output_gradient.dtype, output_gradient.rows, output_gradient.cols);
    relu_backward(saved.output, output_gradient, gradient);
    const Tensor main =
        first_.backward(pass, second_.backward(pass, gradient, saved.second), saved.first);
    ConstTensor side = gradient;
    if (shortcut_) side = shortcut_->backward(pass, gradient, saved.shortcut);
    add(main, side, main);
    return main;
  }

 private:
  struct Saved {
    NormalizedConvolution::Saved first;
    NormalizedConvolution::Saved second;
    NormalizedConvolution::Saved shortcut;
    Tensor output;
  };

  std::string name_;
  NormalizedConvolution first_;
  NormalizedConvolution second_;
  std::optional<NormalizedConvolution> shortcut_;
  Slots<Saved> saved_;
};

// The head. Each rank of a grid has a term of every channel's mean. All ranks compute the same
// logits from the sum, and the first rank reports the losses.
class ResnetHeadUnit : public Unit {
 public:
  ResnetHeadUnit(ParameterTable& table, const ImageShape& input, int64_t classes)
      : place_(table.mesh()),
        average_(input, ImageGrid::of(place_)),
        output_(table, "fc", input.channels, classes,
                {.deviation = 1 / std::sqrt(static_cast<double>(input.channels))}) {}

  std::string name() const override { return "head"; }
  OutputShape output_shape() const override { return {1, output_.outputs()}; }

  Tensor forward(Pass& pass, ConstTensor input) override {
    Saved& saved = saved_[pass.slot];
    const Tensor means = summed(pass, average_.forward(pass, input));
    const Tensor logits = output_.forward(pass, means, saved.output);
    if (place_.first_along({Axis::spatial})) return saved.loss.forward(pass, logits);
    saved.ignored.assign(pass.batch->targets.size(), -1);
    return saved.loss.forward(pass, logits, saved.ignored);
  }

  Tensor backward(Pass& pass, ConstTensor) override {
    Saved& saved = saved_[pass.slot];
    const Tensor gradient = output_.backward(pass, saved.loss.backward(pass), saved.output);
    return average_.backward(pass, summed(pass, gradient));
  }

 private:
  struct Saved {
    Linear::Saved output;
    LossPart loss;
    std::vector<int32_t> ignored;
  };

  Tensor summed(Pass& pass, Tensor parts) const {
    return convert_layout(pass, place_, parts, {parts.rows, parts.cols},
                          {Axis::spatial, Spread::partial}, {});
  }

  MeshPlace place_;
  GlobalAverage average_;
  Linear output_;
  Slots<Saved> saved_;
};

}  // namespace

ResNet::ResNet(const ResNetConfig& config, StatisticsReducer* reducer, const MeshPlace& place)
    : Model(place), config_(checked(config)) {
  add_unit<StemUnit>(config_, reducer);
  auto& stem = static_cast<StemUnit&>(*units_.back());
  append_buffers(buffers_, stem.buffers(), 0);
  multiplications_ += stem.convolution().multiplications();
  windows_.push_back(&stem.convolution().windows());
  ImageShape shape = stem.convolution().output();
  for (size_t stage = 0; stage < config_.blocks.size(); ++stage) {
    for (int64_t block = 0; block < config_.blocks[stage]; ++block) {
      add_unit<ResidualUnit>(cat("layer", stage + 1, ".", block), shape,
                             BlockOptions{.width = config_.widths[stage],
                                          .stride = stage > 0 && block == 0 ? 2 : 1,
                                          .zero_last_gain = config_.zero_last_gain,
                                          .reducer = reducer});
      auto& unit = static_cast<ResidualUnit&>(*units_.back());
      append_buffers(buffers_, unit.buffers(), static_cast<int>(units_.size()) - 1);
      multiplications_ += unit.multiplications();
      unit.append_windows(windows_);
      shape = unit.output();
    }
  }
  add_unit<ResnetHeadUnit>(shape, config_.classes);
  multiplications_ += static_cast<double>(shape.channels * config_.classes);
}

std::vector<NamedBuffer> ResNet::buffers() { return buffers_; }

int64_t ResNet::targets_in(const MicroBatch& batch) const {
  return parameters_.mesh().first_along({Axis::spatial}) ? Model::targets_in(batch) : 0;
}

Json ResNet::configuration() const { return kResNet.write(config_); }

ModelKind resnet_kind() {
  return model_kind<ResNetConfig>(
      "ResNet image classifier",
      {.inputs = Inputs::images, .batch = 128, .micro_batch = 64, .adam_rate = 3e-3}, kResNet,
      [](const ResNetConfig& config, const ModelContext& context) -> std::unique_ptr<Model> {
        return std::make_unique<ResNet>(config, context.reducer(config.sync_batch_norm),
                                        context.place);
      });
}

}  // namespace tutti::training
