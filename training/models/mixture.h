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
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "training/modules/mlp.h"
#include "training/modules/router.h"

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
  struct Saved {
    Router::Saved router;
    Linear::Saved shared_gate;
    // Each token has `each()` entries: its choices, then the shared expert.
    std::vector<int32_t> places;  // the row among all experts' rows; below 0: dropped
    std::vector<double> weights;
    // One entry for each row of an expert, expert after expert.
    std::vector<int32_t> tokens;
    std::vector<double> row_weights;
    std::vector<Share> rows;  // by expert, the shared one last
    std::vector<Mlp::Saved> experts;
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
  size_t parts() const { return experts_.size() + (shared_ ? 1 : 0); }
  const Mlp& part(size_t number) const {
    return number < experts_.size() ? experts_[number] : *shared_;
  }
  void lay_out(Pass& pass, ConstTensor input, Saved& saved) const;
  std::vector<double> shared_weights(Pass& pass, ConstTensor input, Saved& saved) const;
  ConstTensor rows_of(Pass& pass, const Saved& saved, ConstTensor tokens, size_t part) const;
  Tensor before_of(const Saved& saved, Tensor before, size_t part) const;
  void add_up(Pass& pass, const Saved& saved, Tensor rows, std::span<const double> weights,
              Tensor output) const;
  // Backward of the routers' weights, given the gradients of the rows' weights.
  void backward_weights(Pass& pass, std::span<const double> row_gradients, Saved& saved) const;

  MeshPlace place_;
  Router router_;
  std::deque<Mlp> experts_;
  std::optional<Mlp> shared_;
  std::optional<Linear> shared_gate_;
};

}  // namespace tutti::training
