// A mixture of experts in place of a feed-forward part: a router chooses for each token some of
// many, whose outputs are added up by its weights (modules/router.h). Shared experts get every
// token (DeepSeekMoE: Dai et al. 2024), gated by a sigmoid of their own or not.
//
//   tokens    0 1 2 3                    rows of    expert 0: 0 3
//   experts   0 1 1 0   (topk = 2)       the        expert 1: 1 2 3
//             2 2 . 1                    experts    expert 2: 0 1
//                                                   shared:   0 1 2 3
//
// Each expert is a feed-forward part (modules/mlp.h), whose hidden values are cut over the tensor
// ranks as that of a block without experts. What leaves forward and backward is each rank's part of
// a sum, but for the gradient of the tokens as the router saw them, which all tensor ranks have.
//
// Where experts are shared out among ranks (MeshPlace::experts), rows travel to the rank that has
// their expert, and what it makes of them comes back (GShard: Lepikhin et al. 2020). Backward sends
// gradients and weights of rows, and gets gradients of both. Among tensor ranks each sends the rows
// of some of the tokens that they all have. The shared expert computes meanwhile.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "training/modules/mlp.h"
#include "training/modules/router.h"
#include "training/parallel/row_exchange.h"

namespace tutti::training {

struct MixtureOptions {
  RouterOptions router;       // no experts: there is no mixture
  int64_t shared_hidden = 0;  // hidden values of the shared experts together; 0: there are none
  bool shared_gate = false;
  std::string shared_name = "shared_expert";
  std::vector<std::string> shared_names = {};  // of its layers
};

class Mixture {
 public:
  // Rows that an expert computes with at once.
  struct Job {
    size_t expert = 0;
    Share rows;  // of all jobs' rows
    // Where these lie in the tensor that they come from; empty: where they lie among all jobs'.
    std::span<const int32_t> indices;
    Mlp::Saved mlp = {};
  };
  struct Saved {
    Router::Saved router;
    Linear::Saved shared_gate;
    // Each token has `each()` entries: its choices, then the shared expert.
    std::vector<int32_t> places;  // the row among this rank's; below 0: not there
    std::vector<double> weights;
    // This rank's rows: those of the shared expert, which gets all tokens, then those of the
    // experts, one after the other.
    int64_t shared_rows = 0;
    std::vector<int32_t> tokens;  // of the experts' rows
    std::vector<double> row_weights;
    // Where rows travel: those that came, in the order in which jobs compute with them.
    RowExchange exchange;
    std::vector<int32_t> order;  // empty: as they came
    Tensor came;
    Tensor before;
    std::vector<Job> jobs;
    Mlp::Saved shared;
    ConstTensor input;
    Tensor input_gradient;  // by way of the router, on each tensor rank all of it
  };

  // Parameters NAME.gate.weight, NAME.experts.0.gate_proj.weight ..., NAME.shared_expert...;
  // `mlp`: an expert.
  Mixture(ParameterTable& table, const std::string& name, const MixtureOptions& options,
          const MlpOptions& mlp, int64_t context, int64_t layer,
          const std::shared_ptr<ExpertLoad>& load);

  // Takes from the arena what is kept for backward: `before`, for so many rows of the input, and
  // the router's numbers.
  Tensor take(Pass& pass, DType type, int64_t rows, Saved& saved) const;
  // True if rows travel. Then how many come follows from the input, and receive() takes the memory
  // that is kept of them; the input is kept, too.
  bool exchanges() const { return place_.ranks_along(place_.experts) > 1; }
  void receive(Pass& pass, ConstTensor input, Saved& saved) const;
  // In three parts, as Mlp.
  void project(Pass& pass, ConstTensor input, Saved& saved, Tensor before) const;
  void activate(Pass& pass, Saved& saved) const;
  void finish(Pass& pass, Saved& saved, Tensor output) const;

  void set_input(Saved& saved, ConstTensor input) const;
  // A part of the sum; saved.input_gradient is not in it.
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const;
  // True if the samples of a micro-batch are balanced together, and so depend on each other.
  bool needs_all_samples() const {
    const RouterOptions& router = router_.options();
    return router.balance_loss > 0 && router.balance_scope == BalanceScope::micro_batch;
  }
  std::vector<std::string> losses() const { return router_.losses(); }

 private:
  int64_t topk() const { return router_.options().topk; }
  int64_t each() const { return topk() + (shared_ ? 1 : 0); }
  int64_t shared_width() const { return shared_ ? shared_->before_width() : 0; }
  int64_t expert_width() const { return experts_.front().before_width(); }
  bool lies_over_tensor_ranks() const {
    return place_.experts.has(Axis::tensor) && place_.size(Axis::tensor) > 1;
  }
  // Of the tokens that all tensor ranks have, those whose rows this one sends, or adds up.
  Share own_tokens(int64_t tokens) const;
  std::vector<int64_t> lay_out(Pass& pass, ConstTensor input, Saved& saved) const;
  void put_into_order(const Pass& pass, Saved& saved) const;
  std::vector<double> shared_weights(Pass& pass, ConstTensor input, Saved& saved) const;
  // The rows of this rank that travel, or the others' that came, from those of another order.
  Tensor rows_to_send(Pass& pass, const Saved& saved, ConstTensor tokens) const;
  Tensor as_they_came(Pass& pass, const Saved& saved, Tensor results) const;
  Tensor experts_rows(const Saved& saved, Tensor rows) const {
    return rows.row_range(saved.shared_rows, rows.rows - saved.shared_rows);
  }
  void add_up(Pass& pass, const Saved& saved, Tensor rows, std::span<const double> weights,
              Tensor output) const;
  // Backward of the shared expert, or of the others: gradients of the rows and of their weights.
  struct RowGradients {
    Tensor rows;
    std::span<double> weights;
  };
  void backward_shared(Pass& pass, ConstTensor output_gradient, Saved& saved,
                       const RowGradients& found) const;
  void backward_experts(Pass& pass, ConstTensor inputs, ConstTensor gradients,
                        std::span<const double> weights, Saved& saved,
                        const RowGradients& found) const;
  void backward_over_ranks(Pass& pass, ConstTensor output_gradient, Saved& saved,
                           const RowGradients& found) const;
  // Backward of the routers' weights, given the gradients of the rows' weights.
  void backward_weights(Pass& pass, std::span<const double> row_gradients, Saved& saved) const;

  MeshPlace place_;
  Router router_;
  std::deque<Mlp> experts_;
  std::optional<Mlp> shared_;
  std::optional<Linear> shared_gate_;
};

}  // namespace tutti::training
