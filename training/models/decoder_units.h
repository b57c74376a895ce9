// The units of a decoder (decoder.h). Each unit's output is the residual stream
// (residual_stream.h), which is the next unit's input.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "training/core/model.h"
#include "training/models/decoder.h"
#include "training/models/feed_forward.h"
#include "training/models/output_layer.h"
#include "training/models/residual_stream.h"
#include "training/modules/dropout.h"
#include "training/modules/embedding.h"
#include "training/modules/slots.h"

namespace tutti::training {

// standard deviation of initial weights, as in GPT-2
inline constexpr double kDecoderDeviation = 0.02;

// The token embedding. Each tensor-parallel rank has some rows of the table.
class DecoderEmbedding : public Unit {
 public:
  DecoderEmbedding(ParameterTable& table, const DecoderOptions& options);

  const Parameter* token_weight() const { return tokens_.weight(); }
  std::string name() const override { return "embed"; }
  OutputShape output_shape() const override;
  bool backward_needs_nothing() const override { return true; }
  Tensor forward(Pass& pass, ConstTensor) override;
  Tensor backward(Pass& pass, ConstTensor output_gradient) override;

 private:
  struct Saved {
    Embedding::Saved tokens;
    Embedding::Saved positions;
    std::vector<int32_t> places;  // positions of all rows
  };

  int64_t context_;
  int64_t width_;
  ResidualStream stream_;
  Embedding tokens_;
  std::optional<Embedding> positions_;
  Dropout dropout_;
  Slots<Saved> saved_;
};

// A block: computes x + attention(norm(x)), then x + mlp(norm(x)).
class DecoderBlock : public Unit {
 public:
  // Adds the parameters of the block with index `layer`. `load`: counter of the experts' tokens,
  // for models with experts.
  DecoderBlock(ParameterTable& table, const DecoderOptions& options, int64_t layer,
               const std::shared_ptr<ExpertLoad>& load);

  std::string name() const override { return name_; }
  std::vector<std::string> losses() const override { return feed_forward_.losses(); }
  OutputShape output_shape() const override { return shape_; }
  int64_t message_bytes(const MicroBatch& batch, DType type) const {
    return attention_.message_bytes(batch, type);
  }
  Tensor forward(Pass& pass, ConstTensor input) override;
  Tensor backward(Pass& pass, ConstTensor output_gradient) override;

 private:
  struct Saved {
    ConstTensor input;
    Tensor middle;  // the stream after the attention's residual connection
    StreamNorm::Saved norm_1;
    Tensor normal_1;  // output of norm_1 for this rank's rows
    SelfAttention::Saved attention;
    StreamNorm::Saved norm_2;
    Tensor normal_2;
    ConstTensor whole_2;  // rows of normal_2 of all tensor-parallel ranks
    FeedForward::Saved feed_forward;
  };

  // Some or all of the samples. Sums over tensor-parallel ranks for one part overlap with
  // computation on the other parts (Wang et al.: Domino, 2024).
  struct Part {
    // Returns the part's rows of a tensor with the stream's layout.
    template <bool is_const>
    BasicTensor<is_const> of(BasicTensor<is_const> all) const {
      return all.row_range(rows.first, rows.count);
    }

    MicroBatch batch;
    Share rows;  // rows of the stream
    Saved saved;
    std::optional<Pass> pass;  // the part's pass: first of forward, then of backward
    std::optional<ResidualStream::Sum> sum;
    Tensor gradient;  // gradient with respect to `middle`
  };

  std::vector<Part> cut(const Pass& pass, int64_t rows) const;
  static void enter(Part& part, const Pass& pass);
  void attend(Part& part, ConstTensor input) const;
  void feed_forward(Part& part, Tensor output) const;
  void feed_forward_backward(Part& part, ConstTensor output_gradient) const;
  Tensor middle_gradient(Part& part) const;
  void attend_backward(Part& part, ConstTensor output_gradient) const;
  Tensor input_gradient(Part& part) const;

  template <typename Body>
  void recomputable(Arena& arena, Body&& body) const;
  void add_branch(Pass& pass, const Dropout& dropout, ConstTensor input, Tensor branch) const;
  ConstTensor dropped(Pass& pass, ConstTensor gradient, const Dropout& dropout) const;

  std::string name_;
  ResidualStream stream_;
  OutputShape shape_;
  bool selective_;
  StreamNorm norm_1_;
  SelfAttention attention_;
  StreamNorm norm_2_;
  FeedForward feed_forward_;
  std::array<Dropout, 2> dropout_;
  Slots<std::vector<Part>> parts_;
};

// The last unit: normalization, output layer and loss.
class DecoderHead : public Unit {
 public:
  // Adds the parameters. `tied`: the embedding's weight, which the output layer shares; null: the
  // output layer has its own weight.
  DecoderHead(ParameterTable& table, const DecoderOptions& options, const Parameter* tied);

  std::string name() const override { return "head"; }
  OutputShape output_shape() const override { return shape_; }
  Tensor forward(Pass& pass, ConstTensor input) override;
  Tensor backward(Pass& pass, ConstTensor) override;

 private:
  struct Saved {
    StreamNorm::Saved norm;
    OutputLayer::Saved output;
  };

  ResidualStream stream_;
  OutputShape shape_;
  StreamNorm norm_;
  OutputLayer output_;
  Slots<Saved> saved_;
};

}  // namespace tutti::training
