#include "training/models/unet.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"
#include "training/models/normalized_convolution.h"
#include "training/models/sizes.h"
#include "training/modules/features.h"
#include "training/modules/loss.h"
#include "training/modules/pooling.h"
#include "training/modules/slots.h"

namespace tutti::training {
namespace {

using Windows = std::vector<const TiledWindows*>;

UNetConfig checked(const UNetConfig& config) {
  require_images(config);
  require_size("number of widths", std::ssize(config.widths));
  for (const int64_t width : config.widths) require_size("width", width);
  // At least one pixel must remain after the last halving.
  const int64_t halvings = std::ssize(config.widths) - 1;
  if (halvings > 30) {
    throw Error(ErrorCode::invalid_argument, cat("the model has ", halvings + 1, " widths"),
                {.remedy = "use at most 31"});
  }
  require_size("images' height", config.height, int64_t{1} << halvings);
  require_size("images' width", config.width, int64_t{1} << halvings);
  return config;
}

void describe(Schema& schema, UNetConfig& config) {
  schema.add("widths", config.widths, "channels of each encoder level and of the bottom level");
  schema
      .add("sync_bn", config.sync_batch_norm,
           "compute batch statistics over all ranks (synchronized batch normalization)")
      .role(kTrainingOnly);
  describe_images(schema, config, "number of pixel classes");
}

const Described<UNetConfig> kUNet{"model", "kind", "unet", describe};

ImageShape image_of(const UNetConfig& config) {
  return {config.height, config.width, config.channels};
}

// Returns the tensors concatenated by columns.
Tensor beside(Pass& pass, std::span<const ConstTensor> parts) {
  int64_t cols = 0;
  for (const ConstTensor& part : parts) cols += part.cols;
  const Tensor all = pass.arena.take(parts.front().dtype, parts.front().rows, cols);
  int64_t at = 0;
  for (const ConstTensor& part : parts) {
    copy_rows(part, all.col_range(at, part.cols));
    at += part.cols;
  }
  return all;
}

// Returns a copy of some columns.
Tensor columns(Pass& pass, ConstTensor all, int64_t first, int64_t count) {
  const Tensor own = pass.arena.take(all.dtype, all.rows, count);
  copy_rows(all.col_range(first, count), own);
  return own;
}

// Conv 3x3, batch normalization and ReLU, applied twice.
class DoubleConvolution {
 public:
  struct Saved {
    NormalizedConvolution::Saved first, second;
  };

  DoubleConvolution(ParameterTable& table, const std::string& name, const ImageShape& input,
                    int64_t width, StatisticsReducer* reducer)
      : first_(table, name + ".conv1", name + ".bn1", input, options(table, width),
               {.relu = true, .reducer = reducer}),
        second_(table, name + ".conv2", name + ".bn2", first_.convolution().output(),
                options(table, width), {.relu = true, .reducer = reducer}) {}

  ImageShape output() const { return second_.convolution().output(); }
  int64_t output_size() const { return second_.convolution().output_size(); }
  double multiplications() const {
    return first_.convolution().multiplications() + second_.convolution().multiplications();
  }
  void append_windows(Windows& all) const {
    all.push_back(&first_.convolution().windows());
    all.push_back(&second_.convolution().windows());
  }
  std::vector<NamedBuffer> buffers() {
    std::vector<NamedBuffer> all = first_.buffers();
    std::ranges::copy(second_.buffers(), std::back_inserter(all));
    return all;
  }

  Tensor forward(Pass& pass, ConstTensor input, Saved& saved) {
    return second_.forward(pass, first_.forward(pass, input, saved.first), saved.second);
  }
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
    return first_.backward(pass, second_.backward(pass, output_gradient, saved.second),
                           saved.first);
  }
  void backward_first(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
    first_.backward_first(pass, second_.backward(pass, output_gradient, saved.second), saved.first);
  }

 private:
  static ConvolutionOptions options(const ParameterTable& table, int64_t width) {
    return {.outputs = width, .padding = 1, .spatial = spatial_of(table.mesh())};
  }

  NormalizedConvolution first_, second_;
};

// A unit of the network. `along`: number of values per sample that the unit only passes on.
class UNetUnit : public Unit {
 public:
  UNetUnit(std::string name, int64_t along) : name_(std::move(name)), along_(along) {}

  std::string name() const override { return name_; }
  OutputShape output_shape() const override { return {1, output_size()}; }
  // size of this rank's tile, including values that are passed on
  virtual int64_t output_size() const = 0;
  // shape of whole images, without values that are passed on
  virtual ImageShape output() const = 0;
  virtual double multiplications() const = 0;
  virtual void append_windows(Windows& all) const = 0;
  virtual std::vector<NamedBuffer> buffers() = 0;

 protected:
  int64_t along() const { return along_; }

 private:
  std::string name_;
  int64_t along_;
};

// An encoder. The first one reads the micro-batch's images.
class EncoderUnit : public UNetUnit {
 public:
  EncoderUnit(ParameterTable& table, const std::string& name, const ImageShape& input,
              int64_t width, bool is_first, int64_t along, StatisticsReducer* reducer)
      : UNetUnit(name, along),
        input_(input),
        grid_(ImageGrid::of(table.mesh())),
        is_first_(is_first),
        layers_(table, name, input, width, reducer),
        halving_(PoolingKind::max, layers_.output(), {.height = 2, .width = 2, .stride = 2},
                 spatial_of(table.mesh())) {}

  ImageShape output() const override { return halving_.output(); }
  int64_t output_size() const override { return halving_.output_size() + kept() + along(); }
  // size of the output that the decoder needs
  int64_t kept() const { return layers_.output_size(); }
  ImageShape kept_shape() const { return layers_.output(); }
  double multiplications() const override { return layers_.multiplications(); }
  void append_windows(Windows& all) const override {
    layers_.append_windows(all);
    all.push_back(&halving_.windows());
  }
  std::vector<NamedBuffer> buffers() override { return layers_.buffers(); }

  Tensor forward(Pass& pass, ConstTensor input) override {
    Saved& saved = saved_[pass.slot];
    const ConstTensor own = is_first_ ? tile_of_features(pass, input_, grid_)
                                      : columns(pass, input, 0, grid_.own(input_).size());
    const ConstTensor kept = layers_.forward(pass, own, saved.layers);
    const ConstTensor halved = halving_.forward(pass, kept, saved.halving);
    if (is_first_) return beside(pass, std::vector{halved, kept});
    return beside(pass, std::vector{halved, kept, input.col_range(own.cols, along())});
  }

  Tensor backward(Pass& pass, ConstTensor output_gradient) override {
    Saved& saved = saved_[pass.slot];
    const int64_t halved = halving_.output_size();
    const Tensor gradient =
        halving_.backward(pass, columns(pass, output_gradient, 0, halved), saved.halving);
    add(gradient, columns(pass, output_gradient, halved, kept()), gradient);
    if (is_first_) {
      layers_.backward_first(pass, gradient, saved.layers);
      return {};
    }
    const ConstTensor own = layers_.backward(pass, gradient, saved.layers);
    return beside(pass, std::vector{own, output_gradient.col_range(halved + kept(), along())});
  }

 private:
  struct Saved {
    DoubleConvolution::Saved layers;
    Pooling::Saved halving;
  };

  ImageShape input_;
  ImageGrid grid_;
  bool is_first_;
  DoubleConvolution layers_;
  Pooling halving_;
  Slots<Saved> saved_;
};

class BottomUnit : public UNetUnit {
 public:
  BottomUnit(ParameterTable& table, const ImageShape& input, int64_t width, bool is_first,
             int64_t along, StatisticsReducer* reducer)
      : UNetUnit("bottom", along),
        input_(input),
        grid_(ImageGrid::of(table.mesh())),
        is_first_(is_first),
        layers_(table, "bottom", input, width, reducer) {}

  ImageShape output() const override { return layers_.output(); }
  int64_t output_size() const override { return layers_.output_size() + along(); }
  double multiplications() const override { return layers_.multiplications(); }
  void append_windows(Windows& all) const override { layers_.append_windows(all); }
  std::vector<NamedBuffer> buffers() override { return layers_.buffers(); }

  Tensor forward(Pass& pass, ConstTensor input) override {
    DoubleConvolution::Saved& saved = saved_[pass.slot];
    if (is_first_) return layers_.forward(pass, tile_of_features(pass, input_, grid_), saved);
    const ConstTensor own = columns(pass, input, 0, grid_.own(input_).size());
    const ConstTensor output = layers_.forward(pass, own, saved);
    return beside(pass, std::vector{output, input.col_range(own.cols, along())});
  }

  Tensor backward(Pass& pass, ConstTensor output_gradient) override {
    DoubleConvolution::Saved& saved = saved_[pass.slot];
    const int64_t size = layers_.output_size();
    const ConstTensor gradient = columns(pass, output_gradient, 0, size);
    if (is_first_) {
      layers_.backward_first(pass, gradient, saved);
      return {};
    }
    const ConstTensor own = layers_.backward(pass, gradient, saved);
    return beside(pass, std::vector{own, output_gradient.col_range(size, along())});
  }

 private:
  ImageShape input_;
  ImageGrid grid_;
  bool is_first_;
  DoubleConvolution layers_;
  Slots<DoubleConvolution::Saved> saved_;
};

// Doubles the image, concatenates the encoder's channels, and halves their number.
class DecoderUnit : public UNetUnit {
 public:
  DecoderUnit(ParameterTable& table, const std::string& name, const ImageShape& input,
              const ImageShape& kept, int64_t along, StatisticsReducer* reducer)
      : UNetUnit(name, along),
        input_size_(ImageGrid::of(table.mesh()).own(input).size()),
        kept_(ImageGrid::of(table.mesh()).own(kept)),
        doubling_(table, name + ".up", input,
                  {.outputs = kept.channels,
                   .kernel = 2,
                   .stride = 2,
                   .spatial = spatial_of(table.mesh())},
                  kept.height % 2, kept.width % 2),
        layers_(table, name, {kept.height, kept.width, 2 * kept.channels}, kept.channels, reducer) {
  }

  ImageShape output() const override { return layers_.output(); }
  int64_t output_size() const override { return layers_.output_size() + along(); }
  double multiplications() const override {
    return doubling_.multiplications() + layers_.multiplications();
  }
  void append_windows(Windows& all) const override {
    all.push_back(&doubling_.windows());
    layers_.append_windows(all);
  }
  std::vector<NamedBuffer> buffers() override { return layers_.buffers(); }

  Tensor forward(Pass& pass, ConstTensor input) override {
    Saved& saved = saved_[pass.slot];
    const ConstTensor own = columns(pass, input, 0, input_size_);
    const ConstTensor kept = columns(pass, input, input_size_, kept_.size());
    const ConstTensor doubled = doubling_.forward(pass, own, saved.doubling);
    const ConstTensor both = beside(pass, std::vector{as_pixels(doubled), as_pixels(kept)})
                                 .reshaped(input.rows, 2 * kept_.size());
    const ConstTensor output = layers_.forward(pass, both, saved.layers);
    return beside(pass, std::vector{output, input.col_range(input_size_ + kept_.size(), along())});
  }

  Tensor backward(Pass& pass, ConstTensor output_gradient) override {
    Saved& saved = saved_[pass.slot];
    const int64_t size = layers_.output_size();
    const Tensor both =
        layers_.backward(pass, columns(pass, output_gradient, 0, size), saved.layers);
    const Tensor pixels = both.reshaped(both.rows * kept_.pixels(), 2 * kept_.channels);
    const auto half = [&](int64_t first) {
      return columns(pass, pixels, first, kept_.channels).reshaped(both.rows, kept_.size());
    };
    const ConstTensor own = doubling_.backward(pass, half(0), saved.doubling);
    return beside(pass, std::vector{own, ConstTensor(half(kept_.channels)),
                                    output_gradient.col_range(size, along())});
  }

 private:
  struct Saved {
    TransposedConvolution::Saved doubling;
    DoubleConvolution::Saved layers;
  };

  ConstTensor as_pixels(ConstTensor images) const {
    return images.reshaped(images.rows * kept_.pixels(), kept_.channels);
  }

  int64_t input_size_;  // values per sample of this rank's tile of the input
  ImageShape kept_;     // shape of this rank's tile of the encoder's output
  TransposedConvolution doubling_;
  DoubleConvolution layers_;
  Slots<Saved> saved_;
};

// Returns the targets of the pixels in a rank's tile.
std::vector<int32_t> own_targets(const MicroBatch& batch, const ImageShape& image,
                                 const Rectangle& tile) {
  if (batch.targets.empty()) return {};
  if (std::ssize(batch.targets) != batch.samples * image.pixels()) {
    throw Error(ErrorCode::invalid_argument,
                cat("the micro-batch has ", batch.targets.size(), " targets for ", batch.samples,
                    " images of ", image.height, " x ", image.width, " pixels"),
                {.remedy = "provide a target for each pixel"});
  }
  std::vector<int32_t> own;
  own.reserve(static_cast<size_t>(batch.samples * tile.pixels()));
  for (int64_t sample = 0; sample < batch.samples; ++sample) {
    for (int64_t row = 0; row < tile.rows.count; ++row) {
      const int64_t first = sample * image.pixels() + (tile.rows.first + row) * image.width;
      const auto from = batch.targets.subspan(static_cast<size_t>(first + tile.columns.first),
                                              static_cast<size_t>(tile.columns.count));
      own.insert(own.end(), from.begin(), from.end());
    }
  }
  return own;
}

class UNetHeadUnit : public Unit {
 public:
  UNetHeadUnit(ParameterTable& table, const ImageShape& input, int64_t classes)
      : image_(input),
        tile_(ImageGrid::of(table.mesh()).tile(input)),
        classes_(classes),
        layer_(
            table, "head", input,
            {.outputs = classes, .kernel = 1, .bias = true, .spatial = spatial_of(table.mesh())}) {}

  double multiplications() const { return layer_.multiplications(); }
  std::string name() const override { return "head"; }
  OutputShape output_shape() const override { return {tile_.pixels(), classes_}; }

  Tensor forward(Pass& pass, ConstTensor input) override {
    Saved& saved = saved_[pass.slot];
    saved.targets = own_targets(*pass.batch, image_, tile_);
    const Tensor logits = layer_.forward(pass, input, saved.layer);
    return saved.loss.forward(pass, logits.reshaped(input.rows * tile_.pixels(), classes_),
                              saved.targets);
  }

  Tensor backward(Pass& pass, ConstTensor) override {
    Saved& saved = saved_[pass.slot];
    const Tensor gradient = saved.loss.backward(pass);
    return layer_.backward(pass, gradient.reshaped(pass.batch->samples, layer_.output_size()),
                           saved.layer);
  }

 private:
  struct Saved {
    Convolution::Saved layer;
    LossPart loss;
    std::vector<int32_t> targets;
  };

  ImageShape image_;
  Rectangle tile_;
  int64_t classes_;
  Convolution layer_;
  Slots<Saved> saved_;
};

}  // namespace

UNet::UNet(const UNetConfig& config, StatisticsReducer* reducer, const MeshPlace& place)
    : Model(place), config_(checked(config)) {
  ImageShape shape = image_of(config_);
  std::vector<const EncoderUnit*> encoders;
  int64_t along = 0;
  const auto added = [&] {
    auto& unit = static_cast<UNetUnit&>(*units_.back());
    append_buffers(buffers_, unit.buffers(), static_cast<int>(units_.size()) - 1);
    multiplications_ += unit.multiplications();
    unit.append_windows(windows_);
    shape = unit.output();
  };
  for (size_t i = 0; i + 1 < config_.widths.size(); ++i) {
    add_unit<EncoderUnit>(cat("enc", i), shape, config_.widths[i], i == 0, along, reducer);
    encoders.push_back(static_cast<const EncoderUnit*>(units_.back().get()));
    along += encoders.back()->kept();
    added();
  }
  add_unit<BottomUnit>(shape, config_.widths.back(), encoders.empty(), along, reducer);
  added();
  for (size_t i = encoders.size(); i-- > 0;) {
    along -= encoders[i]->kept();
    add_unit<DecoderUnit>(cat("dec", i), shape, encoders[i]->kept_shape(), along, reducer);
    added();
  }
  add_unit<UNetHeadUnit>(shape, config_.classes);
  multiplications_ += static_cast<UNetHeadUnit&>(*units_.back()).multiplications();
}

Json UNet::configuration() const { return kUNet.write(config_); }

int64_t UNet::targets_in(const MicroBatch& batch) const {
  const ImageShape image = image_of(config_);
  const Rectangle tile = ImageGrid::of(parameters_.mesh()).tile(image);
  if (batch.targets.empty()) return batch.samples * tile.pixels();
  if (tile.pixels() == image.pixels()) return Model::targets_in(batch);
  return std::ranges::count_if(own_targets(batch, image, tile),
                               [](int32_t target) { return target >= 0; });
}

ModelKind unet_kind() {
  return model_kind<UNetConfig>(
      "U-Net image segmentation",
      {.inputs = Inputs::images_of_pixels, .batch = 16, .micro_batch = 8, .adam_rate = 3e-3}, kUNet,
      [](const UNetConfig& config, const ModelContext& context) -> std::unique_ptr<Model> {
        return std::make_unique<UNet>(config, context.reducer(config.sync_batch_norm),
                                      context.place);
      });
}

}  // namespace tutti::training
