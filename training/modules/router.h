// A router chooses experts for each token, and the weights of their outputs: it scores them by a
// linear layer and takes the best `topk` (Shazeer et al. 2017; Switch: Fedus et al. 2021; Mixtral:
// Jiang et al. 2024; by groups: DeepSeek-V3, 2024, section 2.1.2).
//
//   token -> [gate] -> logits -> softmax or sigmoid -> the best k -> weights
//                                      |
//                                      +--> balance loss: E sum over experts of f P
//
// where f is the fraction of tokens that choose an expert, and P the mean of its scores. f is
// counted over the global batch (core/expert_load.h), so the loss does not depend on the division
// of a batch into micro-batches and over ranks. Only P has a gradient.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "training/core/expert_load.h"
#include "training/core/parameters.h"
#include "training/core/pass.h"
#include "training/modules/expert_scores.h"
#include "training/modules/linear.h"
#include "training/modules/sum_over_axis.h"

namespace tutti::training {

// How the balance losses of a model's layers are combined.
enum class BalanceOf : uint8_t {
  all_layers,  // f and P are means over all layers' tokens (as in transformers)
  each_layer,  // the loss is the sum of the layers' losses
};

// The tokens over which f and P are computed. With scopes other than global_batch, f and P are
// computed per layer, and BalanceOf::all_layers means the mean of the layers' losses.
enum class BalanceScope : uint8_t { global_batch, micro_batch, sequence };

// Which choices an expert keeps when its capacity is exceeded.
enum class FullExpert : uint8_t {
  by_position,  // the choices of the sample's first tokens
  by_score,     // the choices with the largest weights
};

struct RouterOptions {
  int64_t experts = 0;
  int64_t topk = 2;
  ExpertScores scores = ExpertScores::softmax;
  bool renormalize = true;  // true: a token's weights are divided by their sum
  double weight_scale = 1;  // factor of the weights, applied after renormalization
  // Number of groups of consecutive experts. Experts are chosen only from the best `topk_groups`
  // groups, which are ranked by the sum of their two best scores.
  int64_t groups = 1;
  int64_t topk_groups = 1;
  double balance_loss = 0;  // weight of the balance loss in the total loss; 0: none
  BalanceOf balance = BalanceOf::all_layers;
  BalanceScope balance_scope = BalanceScope::global_batch;
  double bias_rate = 0;  // step of the bias for loss-free balancing (core/expert_load.h); 0: none
  double jitter = 0;  // training multiplies the input by random factors in 1 - jitter to 1 + jitter
  double z_loss = 0;  // weight of the mean squared log-sum-exp of the logits (ST-MoE, 2022)
  // Capacity factor: an expert keeps at most ceil(tokens / experts * capacity * topk) of a sample's
  // choices and drops the others, which then add nothing to the output. 0: keeps all.
  double capacity = 0;
  FullExpert full = FullExpert::by_position;
  // Sums over the context ranks, which share a sample's tokens.
  SumOverAxis sum = nullptr;
};

class Router {
 public:
  struct Saved {
    Linear::Saved gate;
    Tensor logits;  // logits, tokens x experts
    Tensor scores;  // tokens x experts, after softmax or sigmoid; of the type of sums
    // Choices of each token, tokens x topk, best first. `experts`: the chosen expert, or -1 if the
    // choice was dropped; `weights`: the weight of the expert's output.
    std::vector<int32_t> experts;
    std::vector<double> weights;
    std::vector<int32_t> choices;  // as `experts`, but dropped choices have their expert
  };

  // Adds parameter NAME.gate.weight. Forward counts choices in `load` for the layer with index
  // `layer`. `context`: tokens of a whole sample.
  Router(ParameterTable& table, const std::string& name, const RouterOptions& options,
         int64_t width, int64_t context, int64_t layer, std::shared_ptr<ExpertLoad> load);

  const RouterOptions& options() const { return options_; }
  // Call before forward: takes from the arena the memory that backward needs for `rows` tokens.
  void take(Pass& pass, int64_t rows, Saved& saved) const;
  // Chooses experts, and computes their weights, for each row of the input.
  void forward(Pass& pass, ConstTensor input, Saved& saved) const;
  // Returns the input's gradient, given the gradients of the weights (summed over tensor-parallel
  // ranks). The input must be available (set_input).
  Tensor backward(Pass& pass, std::span<const double> weight_gradients, Saved& saved) const;
  void set_input(Saved& saved, ConstTensor input) const { saved.gate.input = input; }
  // Returns the names of the losses that forward adds to a pass.
  std::vector<std::string> losses() const;

 private:
  ConstTensor jittered(Pass& pass, ConstTensor input) const;
  void choose(Saved& saved, int64_t token) const;
  void drop(Pass& pass, Saved& saved) const;
  int64_t most_of_a_sample() const;
  void count(const Saved& saved) const;
  void add_losses(Pass& pass, const Saved& saved) const;
  void add_balance_gradients(Pass& pass, const Saved& saved, Tensor gradients) const;
  void add_weight_gradients(const Saved& saved, int64_t token,
                            std::span<const double> weight_gradients,
                            std::span<const double> scores, std::vector<double>& gradient) const;
  std::vector<double> sums_of_scores(const Saved& saved, int64_t first, int64_t count) const;
  std::vector<double> global_counts() const;
  // Returns, for each expert, the factor of a token's score in the balance loss of the token's
  // sample, given how often each expert is chosen.
  std::vector<double> balance_terms(const std::vector<double>& counts) const;
  // Calls body(first token, tokens, terms) for each part of a micro-batch that is balanced
  // separately.
  template <typename Body>
  void for_each_balance(Pass& pass, const Saved& saved, const Body& body) const;
  std::vector<double> counts_of_samples(Pass& pass, const Saved& saved) const;
  void multiply_by_jitter(Pass& pass, Tensor values) const;

  RouterOptions options_;
  int64_t context_;
  int64_t layer_;
  std::shared_ptr<ExpertLoad> load_;
  Linear gate_;
};

}  // namespace tutti::training
