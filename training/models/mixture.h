// A mixture of experts, which replaces a feed-forward network: a router chooses some experts for
// each token and weights their outputs, which are summed (modules/router.h). Shared experts process
// every token (DeepSeekMoE: Dai et al. 2024), optionally gated by a sigmoid.
//
// The hidden values of an expert are sharded over the tensor-parallel ranks like the hidden values
// of a block without experts. Forward and backward return each rank's term of a sum. Only the
// gradient of the tokens through the router is complete on each tensor-parallel rank.
//
// With expert parallelism ranks own experts (experts.h). All tensor-parallel ranks have the same
// tokens; if they own whole experts, each of them dispatches a part of the tokens. With ranks on
// several hosts a token is sent to each host once (parallel/host_relay.h). The shared expert
// computes while rows are in flight.
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
  RouterOptions router;       // router.experts is 0 if there is no mixture
  int64_t shared_hidden = 0;  // width of the shared experts together; 0: there are none
  bool shared_gate = false;
  std::string shared_name = "shared_expert";
  std::vector<std::string> shared_names = {};  // names of the shared expert's layers
};

class Mixture {
 public:
  struct Saved {
    Router::Saved router;
    Linear::Saved shared_gate;
    Mlp::Saved shared;
    Experts::Saved experts;
    // Set if a token's row is sent once to each host. This rank then receives the rows `arrived`,
    // and `experts` dispatches them inside the host.
    std::optional<HostRelay> relay;
    Tensor arrived;
    // The rows whose weighted sums are the tokens' outputs: first one row of the shared expert for
    // each token, then `rows` of the experts. Each token has each() entries: one for each of its
    // choices, then one for the shared expert.
    int64_t shared_rows = 0;
    int64_t rows = 0;
    std::vector<int32_t> places;  // by entry: index of its row; -1 if it has no row
    std::vector<double> weights;
    std::vector<double> shared_weights;
    ConstTensor input;
    // gradient of the input through the router; complete on each tensor-parallel rank
    Tensor input_gradient;
  };

  // Adds parameters NAME.gate.weight, NAME.experts.0.gate_proj.weight ..., NAME.shared_expert...;
  // `mlp` describes an expert.
  Mixture(ParameterTable& table, const std::string& name, const MixtureOptions& options,
          const MlpOptions& mlp, int64_t context, int64_t layer,
          const std::shared_ptr<ExpertLoad>& load);

  // Allocates memory that is kept for backward, for `rows` rows of the input: the router's arrays,
  // and the tensor that project() writes (`before`), which take() returns.
  Tensor take(Pass& pass, DType type, int64_t rows, Saved& saved) const;
  // exchanges() returns true with expert parallelism. The number of received rows then depends on
  // the input, so receive() routes the input and allocates memory that is kept for backward. The
  // caller must keep the input for backward as well.
  bool exchanges() const { return experts_.exchanges(); }
  void receive(Pass& pass, ConstTensor input, Saved& saved) const { route(pass, input, saved); }
  // Runs the first of the three steps of forward (as in Mlp).
  void project(Pass& pass, ConstTensor input, Saved& saved, Tensor before) const;
  void activate(Pass& pass, Saved& saved) const;
  void finish(Pass& pass, Saved& saved, Tensor output) const;

  void set_input(Saved& saved, ConstTensor input) const;
  // Returns this rank's term of the input's gradient. saved.input_gradient is not included: the
  // caller must add it after summing the terms over ranks.
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const;
  // Returns true if experts are balanced over all samples of a micro-batch together, so that
  // samples depend on each other.
  bool needs_all_samples() const {
    const RouterOptions& router = router_.options();
    return router.balance_loss > 0 && router.balance_scope == BalanceScope::micro_batch;
  }
  std::vector<std::string> losses() const { return router_.losses(); }

 private:
  int64_t topk() const { return router_.options().topk; }
  int64_t each() const { return topk() + (shared_ ? 1 : 0); }
  int64_t shared_width() const { return shared_ ? shared_->before_width() : 0; }
  bool spans_tensor_ranks() const {
    return place_.experts.has(Axis::tensor) && place_.size(Axis::tensor) > 1;
  }
  bool relays(const Pass& pass) const;
  // Returns this tensor-parallel rank's share of the tokens: an even share if the experts are
  // divided among the tensor-parallel ranks, otherwise all tokens.
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
  // Writes the gradients with respect to rows of the input and to the weights. Calls `meanwhile`
  // while rows are in flight.
  void backward_relayed(Pass& pass, ConstTensor output_gradient, Saved& saved, Tensor rows,
                        std::span<double> choices, const std::function<void()>& meanwhile) const;
  void backward_shared(Pass& pass, ConstTensor output_gradient, Saved& saved, Tensor rows,
                       std::span<double> weights) const;
  // Runs backward through the router and the shared gate, given the gradients of their weights.
  void backward_weights(Pass& pass, std::span<const double> choices, std::span<const double> shared,
                        Saved& saved) const;

  MeshPlace place_;
  Router router_;
  Experts experts_;
  std::optional<Mlp> shared_;
  std::optional<Linear> shared_gate_;
};

}  // namespace tutti::training
