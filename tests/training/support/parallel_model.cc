#include "tests/training/support/parallel_model.h"

#include <cstring>
#include <utility>

#include "base/text.h"
#include "training/kernels/elementwise.h"
#include "training/kernels/gemm.h"
#include "training/modules/embedding.h"
#include "training/modules/linear.h"
#include "training/modules/loss.h"
#include "training/modules/norm.h"
#include "training/modules/slots.h"
#include "training/parallel/mesh.h"

namespace tutti::training::testing {
namespace {

class EmbedUnit : public Unit {
 public:
  EmbedUnit(ParameterTable& table, const ParallelModelConfig& config)
      : config_(config), embedding_(table, "embed", config.vocabulary, config.width, 1) {}

  std::string name() const override { return "embed"; }
  OutputShape output_shape() const override { return {1, config_.context * config_.width}; }
  Tensor forward(Pass& pass, ConstTensor) override {
    const int64_t rows = pass.batch->samples;
    const Tensor output = pass.arena.take(pass.dtype, rows, config_.context * config_.width);
    embedding_.forward(pass.batch->tokens,
                       tensor_at(output.data, output.dtype, rows * config_.context, config_.width),
                       saved_[pass.slot]);
    return output;
  }
  Tensor backward(Pass& pass, ConstTensor output_gradient) override {
    Embedding::Saved& saved = saved_[pass.slot];
    saved.output_gradient =
        tensor_at(static_cast<const void*>(output_gradient.data), output_gradient.dtype,
                  output_gradient.rows * config_.context, config_.width);
    pass.finish([this, &pass, &saved] { embedding_.backward_weight(pass, saved); });
    return {};
  }

 private:
  ParallelModelConfig config_;
  Embedding embedding_;
  Slots<Embedding::Saved> saved_;
};

// x + W_down swiglu(W_gate n, W_up n) + b with n = norm(x). Gate and up are packed in one
// parameter, each half of which is cut; of W_down columns are cut.
class MlpUnit : public Unit {
 public:
  MlpUnit(ParameterTable& table, std::string name, const ParallelModelConfig& config)
      : name_(std::move(name)),
        width_(config.context * config.width),
        hidden_(config.hidden / table.mesh().size(Axis::tensor)),
        norm_(table, name_ + ".norm", width_, NormKind::layer, 1e-5,
              config.shares_rows ? Placement{.partial = {Axis::tensor}} : Placement{}),
        shares_rows_(config.shares_rows),
        gate_up_(table.add(name_ + ".gate_up.weight", {2 * config.hidden, width_},
                           {Initial::Kind::normal, 0.1}, packed(config.hidden))),
        gate_up_bias_(table.add(name_ + ".gate_up.bias", {2 * config.hidden},
                                {Initial::Kind::uniform, 0.1}, packed(config.hidden))),
        down_(table.add(name_ + ".down.weight", {width_, config.hidden},
                        {Initial::Kind::normal, 0.1}, {.cuts = {{Axis::tensor, 1}}})),
        down_bias_(table.add(name_ + ".down.bias", {width_}, {Initial::Kind::uniform, 0.1})) {}

  std::string name() const override { return name_; }
  OutputShape output_shape() const override { return {1, width_}; }

  Tensor forward(Pass& pass, ConstTensor input) override {
    Saved& saved = saved_[pass.slot];
    saved.normed =
        gathered(pass, norm_.forward(pass, own_rows(pass, input), saved.norm), input.rows);
    for (int half = 0; half < 2; ++half) {
      saved.before[half] = pass.arena.take(input.dtype, input.rows, hidden_);
      gemm(saved.normed, Transpose::no, rows_of(gate_up_->value, half), Transpose::yes,
           saved.before[half], GemmMode::overwrite,
           gate_up_bias_->value.col_range(half * hidden_, hidden_));
    }
    saved.active = pass.arena.take(input.dtype, input.rows, hidden_);
    swiglu(saved.before[0], saved.before[1], saved.active);
    const Tensor output = pass.arena.take(input.dtype, input.rows, width_);
    gemm(saved.active, Transpose::no, down_->value, Transpose::yes, output);
    sum_over_ranks(pass, output);
    for (int64_t row = 0; row < output.rows; ++row) {
      add(output.row_range(row, 1), down_bias_->value, output.row_range(row, 1));
    }
    add(output, input, output);
    return output;
  }

  Tensor backward(Pass& pass, ConstTensor output_gradient) override {
    Saved& saved = saved_[pass.slot];
    const int64_t rows = output_gradient.rows;
    const DType type = output_gradient.dtype;
    saved.output_gradient = output_gradient;
    const Tensor active = pass.arena.take(type, rows, hidden_);
    gemm(output_gradient, Transpose::no, down_->value, Transpose::no, active);
    for (Tensor& gradient : saved.gradients) gradient = pass.arena.take(type, rows, hidden_);
    swiglu_backward(saved.before[0], saved.before[1], active, saved.gradients[0],
                    saved.gradients[1]);
    const Tensor normed = pass.arena.take(type, rows, width_);
    for (int half = 0; half < 2; ++half) {
      gemm(saved.gradients[half], Transpose::no, rows_of(gate_up_->value, half), Transpose::no,
           normed, half == 0 ? GemmMode::overwrite : GemmMode::accumulate);
    }
    sum_over_ranks(pass, normed);
    const Tensor input_gradient =
        gathered(pass, norm_.backward(pass, own_rows(pass, normed), saved.norm), rows);
    add(input_gradient, output_gradient, input_gradient);
    pass.finish([this, &pass, &saved] { backward_weight(pass, saved); });
    return input_gradient;
  }

 private:
  struct Saved {
    Norm::Saved norm;
    Tensor normed;
    Tensor before[2];  // gate and up
    Tensor active;
    Tensor gradients[2];
    ConstTensor output_gradient;
  };

  static Placement packed(int64_t hidden) {
    return {.cuts = {{Axis::tensor, 0, {hidden, hidden}}}};
  }
  Tensor rows_of(Tensor both, int half) const { return both.row_range(half * hidden_, hidden_); }
  // This rank's part of the rows; and all ranks' parts together.
  template <bool is_const>
  BasicTensor<is_const> own_rows(Pass& pass, BasicTensor<is_const> all) const {
    const auto [first, end] = range_of(pass, all.rows);
    return all.row_range(first, end - first);
  }
  Tensor gathered(Pass& pass, Tensor own, int64_t rows) const {
    if (!shares_rows_) return own;
    const Tensor all = pass.arena.take(own.dtype, rows, own.cols);
    std::memset(all.data, 0, all.bytes());
    const Tensor part = own_rows(pass, all);
    if (!own.empty()) std::memcpy(part.data, own.data, own.bytes());
    sum_over_ranks(pass, all);
    return all;
  }
  std::pair<int64_t, int64_t> range_of(Pass& pass, int64_t rows) const {
    if (!shares_rows_) return {0, rows};
    const int64_t ranks = pass.mesh->size(Axis::tensor);
    const int64_t place = pass.mesh->place(Axis::tensor);
    return {rows * place / ranks, rows * (place + 1) / ranks};
  }
  static void sum_over_ranks(Pass& pass, Tensor tensor) {
    const Buffer buffer{tensor.data, static_cast<uint64_t>(tensor.size()), tensor.dtype};
    pass.mesh->along(Axis::tensor).all_reduce(as_const(buffer), buffer);
  }
  void backward_weight(Pass& pass, const Saved& saved) const {
    for (int half = 0; half < 2; ++half) {
      gemm(saved.gradients[half], Transpose::yes, saved.normed, Transpose::no,
           rows_of(gate_up_->gradient, half), GemmMode::accumulate);
      add_column_sums(saved.gradients[half],
                      gate_up_bias_->gradient.col_range(half * hidden_, hidden_), pass.arena);
    }
    gemm(saved.output_gradient, Transpose::yes, saved.active, Transpose::no, down_->gradient,
         GemmMode::accumulate);
    add_column_sums(saved.output_gradient, down_bias_->gradient, pass.arena);
  }

  std::string name_;
  int64_t width_;
  int64_t hidden_;  // this rank's part
  Norm norm_;
  bool shares_rows_;
  const Parameter* gate_up_;
  const Parameter* gate_up_bias_;
  const Parameter* down_;
  const Parameter* down_bias_;
  Slots<Saved> saved_;
};

class HeadUnit : public Unit {
 public:
  HeadUnit(ParameterTable& table, const ParallelModelConfig& config)
      : output_(table, "head", config.context * config.width, config.vocabulary) {}

  std::string name() const override { return "head"; }
  OutputShape output_shape() const override { return {1, output_.outputs()}; }
  Tensor forward(Pass& pass, ConstTensor input) override {
    Saved& saved = saved_[pass.slot];
    return saved.loss.forward(pass, output_.forward(pass, input, saved.output));
  }
  Tensor backward(Pass& pass, ConstTensor) override {
    Saved& saved = saved_[pass.slot];
    return output_.backward(pass, saved.loss.backward(pass), saved.output);
  }

 private:
  struct Saved {
    Linear::Saved output;
    LossPart loss;
  };

  Linear output_;
  Slots<Saved> saved_;
};

}  // namespace

ParallelModel::ParallelModel(const ParallelModelConfig& config, const MeshPlace& place)
    : Model(place), config_(config) {
  add_unit<EmbedUnit>(config);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    add_unit<MlpUnit>(cat("h.", layer), config);
  }
  add_unit<HeadUnit>(config);
}

Json ParallelModel::configuration() const {
  return {{"kind", "parallel"},
          {"context", config_.context},
          {"width", config_.width},
          {"hidden", config_.hidden},
          {"layers", config_.layers}};
}

}  // namespace tutti::training::testing
