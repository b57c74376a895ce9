// Training with weights that are late on purpose, in the plainest way: one thread, the whole model,
// one micro-batch after the other. What schedules that are never flushed must be equal to.
//
// There are no plans, messages or versions that come and go here: of each stage all weights since
// the last flush are kept in a list, and a rule says which of them a micro-batch takes.
//
//   stage s of p      weights[s] = { after 0 updates, after 1, after 2, ... }
//   micro-batch i     forward and backward through stage s with weights[s][rule(i, s)]
//   each a of them    gradients added up in one tree; then each stage's optimizer makes the
//                     next weights from the newest ones
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "training/core/model.h"
#include "training/optimizers/optimizer.h"

namespace tutti::training::testing {

// How many updates of its stage, since the last flush, the weights have seen that micro-batch i
// (counted from the flush) takes on stage s of p, when a of them make an update.
using Lateness = int64_t (*)(int64_t i, int64_t s, int64_t p, int64_t a);

// PipeDream (Narayanan et al. 2019, section 3.3): forward takes the newest weights of its stage,
// backward the ones that its forward took. Stage s has p - 1 - s micro-batches under way when i
// comes (section 3.2: the input stage admits p, each later one less, and each then alternates a
// forward and a backward). So it has had the backwards of i - (p - 1 - s), and of each a of these
// it has made an update. For a = 1 these are the weights w_s^(t-p+s+1) of the paper's update rule,
// with i = t and s counted from 0.
int64_t pipedream_lateness(int64_t i, int64_t s, int64_t p, int64_t a);
// PipeDream-2BW (Narayanan et al. 2021, section 3.1): W(t+1) = W(t) - rate * gradient(W(t-1)), with
// the same delay on all stages. The micro-batches of update t = i / a take W(t-1); the first ones
// W(0), there being none before.
int64_t double_buffered_lateness(int64_t i, int64_t s, int64_t p, int64_t a);

struct LateOptions {
  Lateness lateness = nullptr;
  std::vector<int> cut;  // the first unit of each stage
  DType dtype = DType::f32;
  std::function<std::unique_ptr<Optimizer>()> make_optimizer;
  uint64_t seed = 1;          // of initial values
  uint64_t dropout_seed = 0;  // of dropout
};

// An update's micro-batches by data-parallel row. A row may have less than the others.
struct LateBatches {
  std::vector<std::vector<MicroBatch>> rows;
  int64_t targets = 0;  // of all rows: the loss is their mean
  double learning_rate = 0;
};

struct LateResult {
  double loss = 0;
  double gradient_norm = 0;
};

class LateTraining {
 public:
  // `model` outlives it; no parameter is shared between stages.
  LateTraining(Model& model, const LateOptions& options);

  // Updates between two flushes, numbered from `first`; `accumulated` micro-batches each, of which
  // the last ones may be missing.
  std::vector<LateResult> run(std::span<const LateBatches> updates, int64_t accumulated,
                              int64_t first);

  // By parameter: what is updated, and the optimizer's states.
  const std::vector<std::vector<float>>& parameters() const { return masters_; }
  std::vector<std::vector<std::vector<float>>> states() const;

 private:
  // One for each parameter: weights in the model's type, or gradients in f32.
  using Typed = std::vector<std::vector<std::byte>>;
  struct Stage {
    std::vector<int> parameters;
    std::unique_ptr<Optimizer> optimizer;
    // By updates since the last flush. Of the model's parameters only this stage's are looked at.
    std::vector<Typed> weights;
  };

  Tensor tensor(Typed& of, int parameter, DType dtype) const;
  Tensor weight(Typed& of, int parameter) const { return tensor(of, parameter, options_.dtype); }
  Tensor gradient(Typed& of, int parameter) const { return tensor(of, parameter, DType::f32); }
  Typed zeros(DType dtype) const;
  Typed rounded_masters();
  void take_weights(int64_t micro_batch, int64_t accumulated);
  double train(const MicroBatch& batch, double loss_scale, Typed& gradients);
  Typed sum_of(std::vector<Typed> terms) const;
  void make_next_weights(Stage& stage, Typed& gradients, int64_t update, double learning_rate);

  Model& model_;
  LateOptions options_;
  Arena arena_;
  std::vector<Stage> stages_;
  std::vector<std::vector<float>> masters_;  // by parameter
  std::vector<std::vector<float>> states_;   // by state: all parameters' elements
  std::vector<int64_t> offsets_;             // by parameter: of its first element there
};

}  // namespace tutti::training::testing
