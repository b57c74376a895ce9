// A block's feed-forward network: either one for all tokens (modules/mlp.h), or a mixture of
// experts (mixture.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "training/models/mixture.h"
#include "training/modules/mlp.h"
#include "training/modules/rows_in_turn.h"

namespace tutti::training {

class FeedForward {
 public:
  struct Saved {
    Mlp::Saved mlp;
    Mixture::Saved mixture;
  };

  FeedForward(ParameterTable& table, const std::string& name, const MlpOptions& mlp,
              const MixtureOptions& mixture, int64_t context, int64_t layer,
              const std::shared_ptr<ExpertLoad>& load) {
    if (mixture.router.experts == 0) {
      mlp_.emplace(table, name, mlp);
    } else {
      mixture_.emplace(table, name, mixture, mlp, context, layer, load);
    }
  }

  // Allocates memory that is kept for backward. Returns the part of it that project() writes.
  // `rows`: number of rows of the input.
  Tensor take(Pass& pass, DType type, int64_t rows, Saved& saved) const {
    if (mixture_) return mixture_->take(pass, type, rows, saved.mixture);
    return pass.arena.take(type, rows, mlp_->before_width());
  }
  // These functions call the functions of the same names of Mixture or, without a mixture, of Mlp.
  // Without a mixture exchanges() returns false, and receive() must not be called.
  bool exchanges() const { return mixture_ && mixture_->exchanges(); }
  void receive(Pass& pass, ConstTensor input, Saved& saved) const {
    mixture_->receive(pass, input, saved.mixture);
  }
  void project(Pass& pass, ConstTensor input, Saved& saved, Tensor before) const {
    mixture_ ? mixture_->project(pass, input, saved.mixture, before)
             : mlp_->project(pass, input, saved.mlp, before);
  }
  void activate(Pass& pass, Saved& saved) const {
    mixture_ ? mixture_->activate(pass, saved.mixture) : mlp_->activate(pass, saved.mlp);
  }
  void finish(Pass& pass, Saved& saved, Tensor output, RowsInTurn* turns) const {
    if (!mixture_) return mlp_->finish(pass, saved.mlp, output, turns);
    mixture_->finish(pass, saved.mixture, output);
    signal_all(output, turns);
  }
  void set_input(Saved& saved, ConstTensor input) const {
    mixture_ ? mixture_->set_input(saved.mixture, input) : mlp_->set_input(saved.mlp, input);
  }
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved, RowsInTurn* turns) const {
    if (!mixture_) return mlp_->backward(pass, output_gradient, saved.mlp, turns);
    const Tensor gradient = mixture_->backward(pass, output_gradient, saved.mixture);
    signal_all(gradient, turns);
    return gradient;
  }
  // Returns a part of the input's gradient that is complete on every tensor-parallel rank; empty if
  // there is none. The caller must add it after summing backward's terms over the ranks.
  ConstTensor whole_gradient(const Saved& saved) const { return saved.mixture.input_gradient; }
  // Returns true if the samples of a micro-batch depend on each other.
  bool needs_all_samples() const { return mixture_ && mixture_->needs_all_samples(); }
  std::vector<std::string> losses() const {
    return mixture_ ? mixture_->losses() : std::vector<std::string>();
  }

 private:
  // Reports all rows of `result` at once, because the rows of a mixture are complete only together.
  static void signal_all(Tensor result, RowsInTurn* turns) {
    if (turns == nullptr) return;
    for (size_t part = 0; part < turns->parts().size(); ++part) turns->done(result, part);
  }

  std::optional<Mlp> mlp_;
  std::optional<Mixture> mixture_;
};

}  // namespace tutti::training
