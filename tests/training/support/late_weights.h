// Reference for schedules without flushes: training with intentionally stale weights on one thread,
// with the whole model, one micro-batch after another. The results of the schedules must be equal.
//
// There are no plans and no messages. All weights of a stage since the last flush are kept in a
// list, and a rule returns which of them a micro-batch uses:
//   stage s of p      weights[s] = { after 0 updates, after 1, after 2, ... }
//   micro-batch i     forward and backward through stage s with weights[s][rule(i, s)]
//   every a micro-batches   gradients summed by one tree; then each stage's optimizer computes
//                           the next weights from the newest ones
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

// Returns the number of updates since the last flush that the weights contain which micro-batch i
// uses on stage s of p. Micro-batches are counted from the flush; a of them make an update.
using Lateness = int64_t (*)(int64_t i, int64_t s, int64_t p, int64_t a);

// PipeDream (Narayanan et al. 2019, section 3.3): a forward uses the stage's newest weights, and
// the backward of the same micro-batch uses the same weights. When micro-batch i arrives, stage s
// has p - 1 - s micro-batches in flight (section 3.2: the input stage admits p, each later stage
// one fewer, and each then alternates forward and backward). The stage has thus completed i - (p -
// 1 - s) backwards, and has made one update for every a of them. For a = 1 these weights are
// w_s^(t-p+s+1) in the paper's update rule, with i = t and s counted from 0.
int64_t pipedream_lateness(int64_t i, int64_t s, int64_t p, int64_t a);
// PipeDream-2BW (Narayanan et al. 2021, section 3.1): W(t+1) = W(t) - rate * gradient(W(t-1)), with
// the same delay on all stages. The micro-batches of update t = i / a use W(t-1). Those of update 0
// use W(0), because there are no earlier weights.
int64_t double_buffered_lateness(int64_t i, int64_t s, int64_t p, int64_t a);

struct LateOptions {
  Lateness lateness = nullptr;
  std::vector<int> cut;  // the first unit of each stage
  DType dtype = DType::f32;
  std::function<std::unique_ptr<Optimizer>()> make_optimizer;
  uint64_t seed = 1;          // seed of the initial values
  uint64_t dropout_seed = 0;  // seed of dropout
};

// The micro-batches of one update, indexed by data-parallel row. A row may have fewer than the
// others.
struct LateBatches {
  std::vector<std::vector<MicroBatch>> rows;
  int64_t targets = 0;  // number of targets in all rows, by which the summed loss is divided
  double learning_rate = 0;
};

struct LateResult {
  double loss = 0;
  double gradient_norm = 0;
};

class LateTraining {
 public:
  // `model` must outlive this object. No parameter may be shared between stages.
  LateTraining(Model& model, const LateOptions& options);

  // Runs the updates between two flushes. Each has `accumulated` micro-batches; the last updates
  // may have fewer. `first` is the number of the first update.
  std::vector<LateResult> run(std::span<const LateBatches> updates, int64_t accumulated,
                              int64_t first);

  // Indexed by parameter: parameters() returns the updated values, states() the optimizer's states.
  const std::vector<std::vector<float>>& parameters() const { return masters_; }
  std::vector<std::vector<std::vector<float>>> states() const;

 private:
  // Indexed by parameter: weights in the model's type, or gradients in f32.
  using Typed = std::vector<std::vector<std::byte>>;
  struct Stage {
    std::vector<int> parameters;
    std::unique_ptr<Optimizer> optimizer;
    // Indexed by updates since the last flush. Only this stage's parameters are used.
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
  std::vector<std::vector<float>> states_;   // by state: the elements of all parameters
  std::vector<int64_t> offsets_;             // by parameter: offset of its first element in a state
};

}  // namespace tutti::training::testing
