// A dense layer: y = x W^T + b, where W is outputs x inputs.
//
// W may be sharded over the ranks of the tensor axis: by outputs, so that each rank computes some
// of them, or by inputs, so that each rank computes a term of the sum y. A layer sharded by outputs
// and a next one sharded by inputs need no communication in between (Shoeybi et al.: Megatron-LM,
// 2019, section 3).
//
//            cut by outputs                     cut by inputs
//   x  ----> [ W_0 ] ----> y_0                  x_0 ----> [ W_0 ] ----> part of y
//   x  ----> [ W_1 ] ----> y_1                  x_1 ----> [ W_1 ] ----> part of y
//   backward: parts of dx                       backward: dx_0, dx_1
//
// The layer does not sum over ranks; the caller sums the terms (parallel/convert_layout.h). In
// deterministic mode (Pass::slices) each slice of the cut dimension is a separate product, and a
// term has the type of sums.
//
// With PassContext::gemm_format the operands of all three products (output, input gradient, weight
// gradient) are rounded to that format (kernels/quantized_gemm.h). In deterministic mode the
// operands of each slice are rounded separately, so the rounded values are the same for any cut.
// Otherwise the blocks and scales depend on the part of the operands that a rank has.
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
  // For deterministic mode: each tensor-parallel rank has the whole weight and computes all
  // outputs, but only a term of the input's gradient, as if the weight were sharded by outputs. The
  // parameters' gradients are complete.
  replicated,
};

struct LinearOptions {
  bool bias = true;
  double deviation = 0.02;  // standard deviation of initial weights; the bias starts at 0
  LinearCut cut = LinearCut::none;
  // Sizes of packed outputs (queries, keys and values), each of which is sharded separately. Empty:
  // the outputs are one part.
  std::vector<int64_t> parts = {};
  // Alternative to sharding. If set, each tensor-parallel rank has the whole weight and computes
  // this range of outputs; ranges of different ranks may overlap. The parameters' gradients are
  // then terms of sums over the tensor-parallel ranks.
  std::optional<Share> chosen = {};
  // True: computes products in the activations' type, ignoring Pass::gemm_format; for routers and
  // output layers.
  bool keeps_precision = false;
  // The rank that alone has the parameters, if there is one. If owner.axes contains the tensor
  // axis, nothing is sharded.
  SoleOwner owner = {};
};

// Returns the BitsOf of a pass's products: in deterministic mode, bits must not depend on the cut.
BitsOf bits_of(const Pass& pass);

// Returns the type of a term of a sum over tensor-parallel ranks, for activations of type `type`.
DType type_of_parts(const Pass& pass, DType type);

class Linear {
 public:
  struct Saved {
    ConstTensor input;
    ConstTensor output_gradient;
    int source = 0;  // index of the micro-batch's rank, for Parameter::gradient_of()
  };

  // Adds parameters NAME.weight and NAME.bias, with the shapes of the whole layer. Throws
  // Error(invalid_argument) if `parts` do not add up to the outputs.
  Linear(ParameterTable& table, const std::string& name, int64_t inputs, int64_t outputs,
         const LinearOptions& options = {});
  // Creates a layer without bias that uses another module's weight (tied embeddings), sharded as in
  // `options`.
  Linear(ParameterTable& table, const Parameter* weight, int64_t inputs, int64_t outputs,
         const LinearOptions& options = {});

  int64_t outputs() const { return outputs_; }  // count of outputs on this rank
  // Returns the ranges of inputs that each yield one term of the sum, for a layer that is sharded
  // by inputs.
  std::vector<Share> input_slices(const Pass& pass) const;
  Tensor forward(Pass& pass, ConstTensor input, Saved& saved) const;
  // Computes `output`: rows x outputs, in the caller's memory; of type_of_parts() if the layer is
  // sharded by inputs. `turns`, if not null, divides the rows into parts and is notified as each
  // part is complete.
  void forward(Pass& pass, ConstTensor input, Saved& saved, Tensor output,
               RowsInTurn* turns = nullptr) const;
  // Returns the input's gradient, of type_of_parts() if the layer is sharded by outputs.
  Tensor backward_input(Pass& pass, ConstTensor output_gradient, Saved& saved) const;
  void backward_weight(Pass& pass, const Saved& saved) const;
  // Returns the input's gradient and computes the weights' gradients, which the pass may defer.
  // `saved` must keep its address until they are computed. `turns` is notified of completed rows of
  // the input gradient.
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved,
                  RowsInTurn* turns = nullptr) const;
  // The arguments of backward for one of several layers that have the same input and equal cuts.
  // The input gradients of these layers are summed.
  struct Backward {
    const Linear* layer;
    ConstTensor output_gradient;
    Saved* saved;
  };
  static Tensor backward_input(Pass& pass, std::span<const Backward> layers,
                               RowsInTurn* turns = nullptr);
  static Tensor backward(Pass& pass, std::span<const Backward> layers, RowsInTurn* turns = nullptr);

 private:
  // Returns the ranges of slice `slice` in this rank's part of the cut dimension, one range for
  // each packed part.
  std::vector<Share> slice_of(const Pass& pass, int slice) const;
  int own_slices(const Pass& pass) const { return pass.slices / ranks_; }
  int first_slice(const Pass& pass) const { return place_ * own_slices(pass); }
  bool cuts_outputs(const Pass& pass) const {
    return pass.slices > 1 && (cut_ == LinearCut::by_outputs || cut_ == LinearCut::replicated);
  }
  bool cuts_inputs(const Pass& pass) const {
    return pass.slices > 1 && cut_ == LinearCut::by_inputs;
  }
  // Returns the index of packed part `part` of slice `slice`, among the packed parts of all slices.
  int64_t number_of(int slice, size_t part) const {
    return slice * static_cast<int64_t>(parts_.size()) + static_cast<int64_t>(part);
  }
  // Calls body(range, number) for each packed part of each slice that this rank computes. `range`:
  // the result of slice_of() for the part; `number`: the result of number_of(), which is the same
  // on every rank.
  template <typename Body>
  void for_each_slice(const Pass& pass, const Body& body) const;
  // A part of the output gradient: some outputs of rows from `first_row` on.
  struct GradientPart {
    Share outputs;
    int64_t number = 0;
    int64_t first_row = 0;
  };
  std::vector<GradientPart> parts_of_slice(const Pass& pass, int slice) const;
  // Computes what the outputs of `part` contribute to the input gradient. By `mode`, the result
  // overwrites `gradient` or is added to it. `rows`: rows of the output gradient, whose columns are
  // all outputs of this rank.
  void add_input_gradient(const Pass& pass, ConstTensor rows, const GradientPart& part,
                          Tensor gradient, GemmMode mode) const;

  struct Product {
    OperandKind a = OperandKind::activation;
    OperandKind b = OperandKind::weight;
    // index of the part of the output gradient; each part has its own random numbers
    int64_t part = 0;
    int64_t first_row = 0;

    bool is_weight_gradient() const { return b == OperandKind::activation; }
  };
  // Multiplies matrices in the pass's format.
  void multiply(const Pass& pass, const Product& product, ConstTensor a, Transpose transpose_a,
                ConstTensor b, Transpose transpose_b, Tensor c, GemmMode mode = GemmMode::overwrite,
                ConstTensor bias = {}) const;
  void add_weight_gradient(const Pass& pass, int64_t part, ConstTensor output_gradient,
                           ConstTensor input, Tensor gradient) const;
  // Returns the index of this rank's output gradient (Product::part) if there are no slices.
  // Tensor-parallel ranks that have the same output gradient get the same index, so that they round
  // it in the same way.
  int64_t own_part() const { return cut_ == LinearCut::by_outputs ? place_ : 0; }

  // Return the rows of the weight or of its gradient that belong to this rank's outputs, and the
  // same columns of the bias.
  Tensor rows_of(const Tensor& weight) const { return weight.row_range(first_output_, outputs_); }
  Tensor columns_of(const Tensor& bias) const { return bias.col_range(first_output_, outputs_); }

  int64_t inputs_;  // count of inputs on this rank
  int64_t outputs_;
  int64_t first_output_ = 0;  // index of this rank's first output in its part of the weight
  LinearCut cut_;
  // sizes of the packed parts of the cut dimension, on all ranks together
  std::vector<int64_t> parts_;
  int ranks_;
  int place_;
  const Parameter* weight_;
  const Parameter* bias_ = nullptr;
  bool adds_bias_ = true;  // false if another rank's term of the sum includes the bias
  bool keeps_precision_;
  uint64_t stream_ = 0;  // stream of random numbers
};

}  // namespace tutti::training
