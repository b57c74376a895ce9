// Causal self-attention of several heads (Vaswani et al. 2017), whose keys and values may each
// serve a group of queries (GQA, Ainslie et al. 2023): queries, keys and values by linear layers,
// blocked attention, and a linear layer on what the heads found. The heads are cut over the ranks
// along the tensor axis; what leaves forward and backward is each rank's part of a sum (linear.h).
// Where the heads of keys cannot be cut, a rank computes those that its queries need; in
// deterministic mode all of them.
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
  int64_t key_heads = 0;  // 0: as many
  int64_t head_size = 0;  // 0: width / heads
  int64_t window = 0;     // keys that a query sees at most, the last ones; 0: all
  bool bias = true;
  std::optional<bool> output_bias = {};  // of the last layer; none: as the others
  std::shared_ptr<const Rope> rope;      // null: none; a model's layers share one
  // Of micro-batches whose tokens are dealt out; a model's layers share it too.
  std::shared_ptr<const AttentionOverRanks> over_ranks;
  // Of the layers: queries, keys and values together, as GPT-2 has them, or each by itself.
  std::vector<std::string> in = {"c_attn"};
  std::string out = "c_proj";
  // Norms of queries and keys, called `q_norm` and `k_norm`; only if `in` names three layers.
  HeadNormKind head_norm = HeadNormKind::none;
  double head_norm_epsilon = 1e-6;
  SumOverAxis sum = nullptr;       // for these norms
  double output_deviation = 0.02;  // of the last layer's weights at the start
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
    std::vector<int32_t> starts, ends;  // AttentionShape's
    Linear::Saved out;
  };

  // Parameters of NAME.IN and NAME.OUT. Throws Error(invalid_argument) where the heads do not
  // divide the width, or the heads of keys those of queries.
  SelfAttention(ParameterTable& table, const std::string& name,
                const SelfAttentionOptions& options);

  // Takes from the arena what is kept of so many rows' projections: queries, keys and values (and
  // the first two as they were before their norms).
  Tensor take(Pass& pass, DType type, int64_t rows, Saved& saved) const;
  // In three parts, so that the input need not outlive the first one if backward gets it anew
  // (set_input). Rows of the micro-batch's samples.
  void project(Pass& pass, ConstTensor input, Saved& saved, Tensor qkv) const;
  void attend(Pass& pass, Saved& saved) const;
  // `output`: rows x width, of type_of_parts() (linear.h).
  void finish(Pass& pass, Saved& saved, Tensor output, RowsInTurn* turns = nullptr) const;
  // AttentionOverRanks::message_bytes(), where tokens are dealt out.
  int64_t message_bytes(const MicroBatch& batch, DType type) const;

  void set_input(Saved& saved, ConstTensor input) const;
  // Columns that each tensor rank has some of, of all of them.
  using Gather = std::function<ConstTensor(ConstTensor)>;
  // Needs the input. `gather` is called in deterministic mode where tensor ranks share heads of
  // keys.
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved, const Gather& gather = {},
                  RowsInTurn* turns = nullptr) const;

 private:
  // Of all ranks' heads.
  struct Whole {
    SelfAttentionOptions options;
  };
  SelfAttention(ParameterTable& table, const std::string& name, const Whole& whole);

  AttentionShape shape(const Pass& pass, const Saved& saved) const;
  void see(const MicroBatch& batch, Saved& saved) const;
  void rotate(const MicroBatch& batch, Tensor qkv, bool back) const;
  // What the i-th linear layer makes.
  Tensor part(Tensor qkv, size_t layer) const;
  // Of what they make together: the queries, and the keys and values that these look at.
  template <bool is_const>
  BasicQkv<is_const> split(BasicTensor<is_const> qkv) const;
  void backward_by_heads(Pass& pass, ConstTensor attended_gradient, const Saved& saved,
                         Tensor gradient, const Gather& gather) const;

  SelfAttentionOptions options_;  // with this rank's heads
  Share keys_;                    // of the heads of keys that the layers make: this rank's queries'
  int64_t group_;                 // heads of queries that one of keys serves, on all ranks
  int64_t before_;                // of these, of this rank's first head of keys, on ranks before
  std::vector<Linear> in_;
  std::vector<HeadNorm> norms_;  // of queries and of keys, or none
  Linear out_;
};

}  // namespace tutti::training
