// Causal multi-head self-attention (Vaswani et al. 2017): linear layers for queries, keys and
// values, blocked attention, and an output layer. A head of keys and values may serve a group of
// query heads (GQA, Ainslie et al. 2023). Heads are sharded over the tensor axis; forward and
// backward return each rank's term of a sum (linear.h). If key heads cannot be divided evenly, a
// rank computes the key heads that its queries need or, in deterministic mode, all key heads.
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
  int64_t key_heads = 0;  // number of key heads; 0: as many as query heads
  int64_t head_size = 0;  // values per head; 0: width / heads
  // Number of keys to which a query attends: its own and those just before it. 0: its own and all
  // keys before it.
  int64_t window = 0;
  bool bias = true;
  // true if the output layer has a bias; nullopt: same as `bias`
  std::optional<bool> output_bias = {};
  // rotation of queries and keys, shared by a model's layers; null: none
  std::shared_ptr<const Rope> rope;
  // For micro-batches whose tokens are divided over ranks; shared by a model's layers.
  std::shared_ptr<const AttentionOverRanks> over_ranks;
  // Names of the input layers: one for queries, keys and values together (GPT-2), or three.
  std::vector<std::string> in = {"c_attn"};
  std::string out = "c_proj";
  // Kind of the norms of queries and keys, named `q_norm` and `k_norm`; requires three names in
  // `in`.
  HeadNormKind head_norm = HeadNormKind::none;
  double head_norm_epsilon = 1e-6;
  SumOverAxis sum = nullptr;       // sums over ranks for the norms of queries and keys
  double output_deviation = 0.02;  // standard deviation of the output layer's initial weights
  int slices = 1;                  // value of Pass::slices in all passes
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

  // Adds parameters NAME.IN and NAME.OUT. Throws Error(invalid_argument) if the number of key heads
  // does not divide the number of heads or, without a head_size, the number of heads does not
  // divide the width.
  SelfAttention(ParameterTable& table, const std::string& name,
                const SelfAttentionOptions& options);

  // Takes memory from the arena for the projections of `rows` rows: queries, keys and values, and
  // if there are norms also queries and keys before them.
  Tensor take(Pass& pass, DType type, int64_t rows, Saved& saved) const;
  // Runs the first of three steps of forward, which computes queries, keys and values. The input
  // need not outlive this step if it is recomputed for backward (set_input). Rows are those of the
  // micro-batch's samples.
  void project(Pass& pass, ConstTensor input, Saved& saved, Tensor qkv) const;
  void attend(Pass& pass, Saved& saved) const;
  // Runs the output layer. `output`: rows x width, of type_of_parts() (linear.h).
  void finish(Pass& pass, Saved& saved, Tensor output, RowsInTurn* turns = nullptr) const;
  // Returns AttentionOverRanks::message_bytes() if tokens are divided over ranks, otherwise 0.
  int64_t message_bytes(const MicroBatch& batch, DType type) const;

  void set_input(Saved& saved, ConstTensor input) const;
  // Function that gathers all columns of a tensor whose columns are split over the tensor-parallel
  // ranks.
  using Gather = std::function<ConstTensor(ConstTensor)>;
  // Returns the input's gradient. The input must be available. `gather` is called in deterministic
  // mode if tensor-parallel ranks share key heads.
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved, const Gather& gather = {},
                  RowsInTurn* turns = nullptr) const;

 private:
  // Options whose numbers of heads count the heads of all ranks.
  struct Whole {
    SelfAttentionOptions options;
  };
  SelfAttention(ParameterTable& table, const std::string& name, const Whole& whole);

  AttentionShape shape(const Pass& pass, const Saved& saved) const;
  void see(const MicroBatch& batch, Saved& saved) const;
  void rotate(const MicroBatch& batch, Tensor qkv, bool back) const;
  // Returns the output of the input layer with index `layer`.
  Tensor part(Tensor qkv, size_t layer) const;
  // Splits the layers' joint output into queries, and the keys and values to which they attend.
  template <bool is_const>
  BasicQkv<is_const> split(BasicTensor<is_const> qkv) const;
  void backward_by_heads(Pass& pass, ConstTensor attended_gradient, const Saved& saved,
                         Tensor gradient, const Gather& gather) const;

  SelfAttentionOptions options_;  // with the numbers of heads on this rank
  Share keys_;                    // among this rank's key heads, the range that its queries need
  int64_t group_;                 // number of query heads per key head, in the whole model
  int64_t before_;  // number of query heads on earlier ranks that use this rank's first key head
  std::vector<Linear> in_;
  std::vector<HeadNorm> norms_;  // norms of queries and of keys; may be empty
  Linear out_;
};

}  // namespace tutti::training
