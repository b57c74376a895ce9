// A mixture of experts instead of one feed-forward network: a router chooses some experts for each
// token and weights their outputs, which are summed (modules/router.h). Shared experts process
// every token (DeepSeekMoE: Dai et al. 2024), optionally gated by a sigmoid.
//
// An expert's hidden values are cut over the tensor ranks like those of a block without experts.
// The results of forward and backward are each rank's term of a sum, except for the gradient of the
// tokens through the router, which all tensor ranks have.
//
// With expert parallelism ranks own experts (experts.h). Tensor ranks, which all have the same
// tokens, dispatch a part of them each if they own whole experts. With ranks on several hosts a
// token is sent to each host once (parallel/host_relay.h). The shared expert computes while rows
// are in flight.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "training/models/experts.h"
#include "training/modules/mlp.h"
#include "training/modules/router.h"
#include "training/parallel/host_relay.h"

namespace tutti::training {

struct MixtureOptions {
  RouterOptions router;       // no experts: no mixture
  int64_t shared_hidden = 0;  // hidden values of the shared experts together; 0: none
  bool shared_gate = false;
  std::string shared_name = "shared_expert";
  std::vector<std::string> shared_names = {};  // of its layers
};

class Mixture {
 public:
  struct Saved {
    Router::Saved router;
    Linear::Saved shared_gate;
    Mlp::Saved shared;
    Experts::Saved experts;
    // With ranks on several hosts: `experts` compute with the rows that this rank forwards.
    std::optional<HostRelay> relay;
    Tensor arrived;
    // The rows whose weighted sums are the tokens' outputs: first those of the shared expert, one
    // for each token, then `rows` of the experts. Each token has each() entries: its choices, then
    // the shared expert.
    int64_t shared_rows = 0;
    int64_t rows = 0;
    std::vector<int32_t> places;  // row of an entry; below 0: none
    std::vector<double> weights;
    std::vector<double> shared_weights;
    ConstTensor input;
    Tensor input_gradient;  // through the router; whole on each tensor rank
  };

  // Parameters NAME.gate.weight, NAME.experts.0.gate_proj.weight ..., NAME.shared_expert...;
  // `mlp`: an expert.
  Mixture(ParameterTable& table, const std::string& name, const MixtureOptions& options,
          const MlpOptions& mlp, int64_t context, int64_t layer,
          const std::shared_ptr<ExpertLoad>& load);

  // Allocates what is kept for backward: the router's arrays, and `before`, which it returns, for
  // `rows` rows of the input.
  Tensor take(Pass& pass, DType type, int64_t rows, Saved& saved) const;
  // True with expert parallelism. The number of received rows then depends on the input: receive()
  // routes it and allocates what is kept for backward; the input is kept, too.
  bool exchanges() const { return experts_.exchanges(); }
  void receive(Pass& pass, ConstTensor input, Saved& saved) const { route(pass, input, saved); }
  // Forward in three steps, as in Mlp.
  void project(Pass& pass, ConstTensor input, Saved& saved, Tensor before) const;
  void activate(Pass& pass, Saved& saved) const;
  void finish(Pass& pass, Saved& saved, Tensor output) const;

  void set_input(Saved& saved, ConstTensor input) const;
  // Returns a term of the sum, without saved.input_gradient.
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
  bool lies_over_tensor_ranks() const {
    return place_.experts.has(Axis::tensor) && place_.size(Axis::tensor) > 1;
  }
  bool relays(const Pass& pass) const;
  // The tokens that this tensor rank dispatches, or whose outputs it adds up.
  Share own_tokens(int64_t tokens) const;
  void route(Pass& pass, ConstTensor input, Saved& saved) const;
  void set_entries(Pass& pass, ConstTensor input, Saved& saved) const;
  std::vector<double> shared_weights(Pass& pass, ConstTensor input, Saved& saved) const;
  Tensor experts_rows(const Saved& saved, Tensor rows) const {
    return rows.row_range(saved.shared_rows, saved.rows);
  }
  Tensor rows_to_relay(Pass& pass, const Saved& saved, ConstTensor tokens) const;
  void add_up(Pass& pass, const Saved& saved, Tensor rows, std::span<const double> weights,
              Tensor output) const;
  // Gradients with respect to rows of the input, and to the weights. `meanwhile` runs while rows
  // are in flight.
  void backward_relayed(Pass& pass, ConstTensor output_gradient, Saved& saved, Tensor rows,
                        std::span<double> choices, const std::function<void()>& meanwhile) const;
  void backward_shared(Pass& pass, ConstTensor output_gradient, Saved& saved, Tensor rows,
                       std::span<double> weights) const;
  // Backward through the router and the shared gate, given the gradients of their weights.
  void backward_weights(Pass& pass, std::span<const double> choices, std::span<const double> shared,
                        Saved& saved) const;

  MeshPlace place_;
  Router router_;
  Experts experts_;
  std::optional<Mlp> shared_;
  std::optional<Linear> shared_gate_;
};

}  // namespace tutti::training
