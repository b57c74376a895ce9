// Causal multi-head self-attention (Vaswani et al. 2017), in which a head of keys and values may
// serve a group of query heads (GQA, Ainslie et al. 2023): linear layers for queries, keys and
// values, blocked attention, and an output layer. Heads are cut over the tensor axis; the results
// of forward and backward are each rank's term of a sum (linear.h). If key heads cannot be divided
// evenly, a rank computes those that its queries need; in deterministic mode all of them.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "training/kernels/attention.h"
#include "training/modules/attention_over_ranks.h"
#include "training/modules/head_norm.h"
#include "training/modules/linear.h"
#include "training/modules/rope.h"

namespace tutti::training {

struct SelfAttentionOptions {
  int64_t width = 0;
  int64_t heads = 1;
  int64_t key_heads = 0;  // 0: as many as heads
  int64_t head_size = 0;  // 0: width / heads
  int64_t window = 0;     // number of last keys that a query attends to; 0: all
  bool bias = true;
  std::optional<bool> output_bias = {};  // of the output layer; none: same as `bias`
  std::shared_ptr<const Rope> rope;      // null: no rotation; shared by a model's layers
  // For micro-batches whose tokens are distributed over ranks; shared by a model's layers.
  std::shared_ptr<const AttentionOverRanks> over_ranks;
  // Names of the input layers: one for queries, keys and values together (GPT-2), or three.
  std::vector<std::string> in = {"c_attn"};
  std::string out = "c_proj";
  // Norms of queries and keys, named `q_norm` and `k_norm`; requires three names in `in`.
  HeadNormKind head_norm = HeadNormKind::none;
  double head_norm_epsilon = 1e-6;
  SumOverAxis sum = nullptr;       // for these norms
  double output_deviation = 0.02;  // of the output layer's initial weights
  int slices = 1;                  // Pass::slices of all passes
};

class SelfAttention {
 public:
  struct Saved {
    std::array<Linear::Saved, 3> in;
    Tensor qkv;
    std::array<HeadNorm::Saved, 2> norms;
    Tensor attended;
    Tensor lse;
    AttentionOverRanks::Saved over_ranks;
    std::vector<int32_t> starts, ends;  // see AttentionShape
    Linear::Saved out;
  };

  // Parameters NAME.IN and NAME.OUT. Throws Error(invalid_argument) if the heads do not divide the
  // width, or the key heads do not divide the heads.
  SelfAttention(ParameterTable& table, const std::string& name,
                const SelfAttentionOptions& options);

  // Takes memory for the projections of `rows` rows from the arena: queries, keys and values (and
  // the first two before their norms).
  Tensor take(Pass& pass, DType type, int64_t rows, Saved& saved) const;
  // Forward in three steps, so that the input need not outlive the first one if it is recomputed
  // for backward (set_input). Rows are those of the micro-batch's samples.
  void project(Pass& pass, ConstTensor input, Saved& saved, Tensor qkv) const;
  void attend(Pass& pass, Saved& saved) const;
  // `output`: rows x width, of type_of_parts() (linear.h).
  void finish(Pass& pass, Saved& saved, Tensor output, RowsInTurn* turns = nullptr) const;
  // AttentionOverRanks::message_bytes(), if tokens are distributed.
  int64_t message_bytes(const MicroBatch& batch, DType type) const;

  void set_input(Saved& saved, ConstTensor input) const;
  // Gathers the columns of which each tensor rank has some.
  using Gather = std::function<ConstTensor(ConstTensor)>;
  // Requires the input. `gather` is called in deterministic mode if tensor ranks share key heads.
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved, const Gather& gather = {},
                  RowsInTurn* turns = nullptr) const;

 private:
  // Options with the heads of all ranks.
  struct Whole {
    SelfAttentionOptions options;
  };
  SelfAttention(ParameterTable& table, const std::string& name, const Whole& whole);

  AttentionShape shape(const Pass& pass, const Saved& saved) const;
  void see(const MicroBatch& batch, Saved& saved) const;
  void rotate(const MicroBatch& batch, Tensor qkv, bool back) const;
  // The output of the i-th input layer.
  Tensor part(Tensor qkv, size_t layer) const;
  // Splits the layers' joint output into queries and the keys and values that these attend to.
  template <bool is_const>
  BasicQkv<is_const> split(BasicTensor<is_const> qkv) const;
  void backward_by_heads(Pass& pass, ConstTensor attended_gradient, const Saved& saved,
                         Tensor gradient, const Gather& gather) const;

  SelfAttentionOptions options_;  // with the numbers of heads on this rank
  Share keys_;                    // this rank's queries' key heads, among those of its layers
  int64_t group_;                 // query heads per key head, in the whole model
  int64_t before_;                // query heads of this rank's first key head on earlier ranks
  std::vector<Linear> in_;
  std::vector<HeadNorm> norms_;  // of queries and of keys, or empty
  Linear out_;
};

}  // namespace tutti::training
