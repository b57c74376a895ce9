// y = x W^T + b, with W as (outputs x inputs).
//
// Over the ranks along the tensor axis W may be cut by its outputs, of which each rank then makes
// some, or by its inputs: then each rank makes a part of the sum that is y. What one layer cuts by
// outputs and the next by inputs needs nothing of the other ranks in between (Shoeybi et al.:
// Megatron-LM, 2019, section 3).
//
//            cut by outputs                     cut by inputs
//   x  ----> [ W_0 ] ----> y_0                  x_0 ----> [ W_0 ] ----> part of y
//   x  ----> [ W_1 ] ----> y_1                  x_1 ----> [ W_1 ] ----> part of y
//   backward: parts of dx                       backward: dx_0, dx_1
//
// The layer sums nothing over ranks: whoever uses it adds the parts up (parallel/convert_layout.h).
// In deterministic mode (Pass::slices) each slice of what is cut is a product by itself, and a part
// of a sum has the type of sums.
//
// With PassContext::gemm_format the operands of all three products (output, input gradient, weight
// gradient) are rounded to that format (kernels/quantized_gemm.h), each slice by itself. So in
// deterministic mode the values are the same for any cut; else blocks and scales are those of a
// rank's part.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "training/core/parameters.h"
#include "training/core/pass.h"
#include "training/kernels/gemm.h"
#include "training/kernels/quantized_gemm.h"
#include "training/modules/rows_in_turn.h"

namespace tutti::training {

enum class LinearCut : uint8_t {
  none,
  by_outputs,
  by_inputs,
  // Deterministic mode: each tensor rank has the whole weight and makes all outputs, but of the
  // input's gradient a part of the sum, as if the weight were cut by outputs. The parameters'
  // gradients are whole.
  replicated,
};

struct LinearOptions {
  bool bias = true;
  double deviation = 0.02;  // of the weights at the start; the bias starts at 0
  LinearCut cut = LinearCut::none;
  // Outputs that are packed, each of which is cut by itself: queries, keys and values. Empty: one.
  std::vector<int64_t> parts = {};
  // Instead of a cut: each tensor rank has the whole weight and makes these of its outputs, which
  // may be others' too. The parameters' gradients are then parts of sums over these ranks.
  std::optional<Share> chosen = {};
  // The products are those of the activations' type, whatever Pass::gemm_format says: for routers
  // and output layers.
  bool keeps_precision = false;
  // The only rank that has the parameters. Where it is one of the tensor ranks nothing is cut.
  SoleOwner owner = {};
};

// The bits that the products of a pass are to have: the same for any cut in deterministic mode.
BitsOf bits_of(const Pass& pass);

// Of activations of a type: that of a part of a sum over tensor ranks.
DType type_of_parts(const Pass& pass, DType type);

class Linear {
 public:
  struct Saved {
    ConstTensor input;
    ConstTensor output_gradient;
    int source = 0;  // the rank whose micro-batch it is (Parameter::gradient_of)
  };

  // Parameters NAME.weight and NAME.bias, of the whole layer. Throws Error(invalid_argument) where
  // the parts are not the outputs.
  Linear(ParameterTable& table, const std::string& name, int64_t inputs, int64_t outputs,
         const LinearOptions& options = {});
  // Without a bias, with somebody else's weight (tied embeddings), which is cut as `options` say.
  Linear(ParameterTable& table, const Parameter* weight, int64_t inputs, int64_t outputs,
         const LinearOptions& options = {});

  int64_t outputs() const { return outputs_; }  // on this rank
  // A layer that is cut by its inputs makes one term of a sum from each of these ranges of them.
  std::vector<Share> input_slices(const Pass& pass) const;
  Tensor forward(Pass& pass, ConstTensor input, Saved& saved) const;
  // `output`: rows x outputs, the caller's; of a layer that is cut by its inputs of
  // type_of_parts(). `turns` (null: all rows at once) is told of its rows.
  void forward(Pass& pass, ConstTensor input, Saved& saved, Tensor output,
               RowsInTurn* turns = nullptr) const;
  // Of a layer that is cut by its outputs: of type_of_parts().
  Tensor backward_input(Pass& pass, ConstTensor output_gradient, Saved& saved) const;
  void backward_weight(Pass& pass, const Saved& saved) const;
  // Both; the weights now or later, as the pass says. `saved` stays where it is until then.
  // `turns` is told of the input gradient's rows.
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved,
                  RowsInTurn* turns = nullptr) const;
  // The same of several layers with one input, cut in one way, whose gradients are added up.
  struct Backward {
    const Linear* layer;
    ConstTensor output_gradient;
    Saved* saved;
  };
  static Tensor backward_input(Pass& pass, std::span<const Backward> layers,
                               RowsInTurn* turns = nullptr);
  static Tensor backward(Pass& pass, std::span<const Backward> layers, RowsInTurn* turns = nullptr);

 private:
  // Of the cut dimension what slice `slice` of all is, of each packed part, as this rank has it.
  std::vector<Share> slice_of(const Pass& pass, int slice) const;
  int own_slices(const Pass& pass) const { return pass.slices / ranks_; }
  int first_slice(const Pass& pass) const { return place_ * own_slices(pass); }
  bool cuts_outputs(const Pass& pass) const {
    return pass.slices > 1 && (cut_ == LinearCut::by_outputs || cut_ == LinearCut::replicated);
  }
  bool cuts_inputs(const Pass& pass) const {
    return pass.slices > 1 && cut_ == LinearCut::by_inputs;
  }
  // Numbers the packed parts of all slices.
  int64_t number_of(int slice, size_t part) const {
    return slice * static_cast<int64_t>(parts_.size()) + static_cast<int64_t>(part);
  }
  // body(part, number): `number` is the same on whichever rank computes with the part.
  template <typename Body>
  void for_each_slice(const Pass& pass, const Body& body) const;
  // Rows of the output gradient, and which of the outputs.
  struct GradientPart {
    Share outputs;
    int64_t number = 0;
    int64_t first_row = 0;
  };
  std::vector<GradientPart> parts_of_slice(const Pass& pass, int slice) const;
  // Adds to `gradient`, or overwrites it with, a part of this layer's. `rows` of the output
  // gradient have all outputs.
  void add_input_gradient(const Pass& pass, ConstTensor rows, const GradientPart& part,
                          Tensor gradient, GemmMode mode) const;

  struct Product {
    OperandKind a = OperandKind::activation;
    OperandKind b = OperandKind::weight;
    int64_t part = 0;  // of the output gradient, which has random numbers of its own
    int64_t first_row = 0;

    bool is_weight_gradient() const { return b == OperandKind::activation; }
  };
  // Multiplies in the pass's format.
  void multiply(const Pass& pass, const Product& product, ConstTensor a, Transpose transpose_a,
                ConstTensor b, Transpose transpose_b, Tensor c, GemmMode mode = GemmMode::overwrite,
                ConstTensor bias = {}) const;
  void add_weight_gradient(const Pass& pass, int64_t part, ConstTensor output_gradient,
                           ConstTensor input, Tensor gradient) const;
  // The number of this rank's output gradient, where it is not computed in slices: tensor ranks
  // that have the same one round it alike.
  int64_t own_part() const { return cut_ == LinearCut::by_outputs ? place_ : 0; }

  // What of the weight, or of its gradient, makes this rank's outputs; and of the bias.
  Tensor rows_of(const Tensor& weight) const { return weight.row_range(first_output_, outputs_); }
  Tensor columns_of(const Tensor& bias) const { return bias.col_range(first_output_, outputs_); }

  int64_t inputs_;  // on this rank, as the outputs
  int64_t outputs_;
  int64_t first_output_ = 0;  // of what this rank has of the weight
  LinearCut cut_;
  std::vector<int64_t> parts_;  // of the cut dimension, on all ranks
  int ranks_;
  int place_;
  const Parameter* weight_;
  const Parameter* bias_ = nullptr;
  bool adds_bias_ = true;  // of a sum of the ranks' parts only one has it
  bool keeps_precision_;
  uint64_t stream_ = 0;  // of random numbers
};

}  // namespace tutti::training
