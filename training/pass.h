// One micro-batch on its way through a model, and what every module's calls have in common.
//
// A module is a value with parameters (handles), no state of its own:
//   forward(pass, input, saved)                    -> output; `saved` gets what backward needs
//   backward_input(pass, output_gradient, saved)   -> dLoss/dInput
//   backward_weight(pass, saved)                   adds dLoss/dParameter to the gradients
// so that several micro-batches may be under way at once (pipelines), each with its own `saved`.
// backward_weight may run at once or be put off (Pass::finish): zero-bubble schedules do.
//
// Memory: outputs and whatever is saved come from the pass's arena; whoever runs the units takes
// marks and releases them. Inputs live until backward is done. Modules keep views, not copies.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "training/arena.h"
#include "training/tensor.h"

namespace tutti::training {

// What a micro-batch consists of. The memory is the data source's.
struct MicroBatch {
  int64_t samples = 0;
  uint64_t first_sample = 0;  // its number among all samples since training began
  // Language models: samples x context tokens, and as many (or one per sample) to predict.
  std::span<const int32_t> tokens;
  // Numbers that are known of each sample: images are samples x (height * width * channels), in
  // [0, 1].
  std::span<const float> features;
  std::span<const int32_t> targets;
  // In place of them, where numbers are predicted: samples x outputs.
  std::span<const float> float_targets;

  // How many there are of either kind: losses are sums over them.
  int64_t target_count() const { return std::ssize(targets) + std::ssize(float_targets); }
};

struct Pass {
  Arena& arena;
  const MicroBatch* batch = nullptr;
  DType dtype = DType::f32;  // of activations
  int slot = 0;              // which of the micro-batches under way: units keep `saved` by slot
  uint64_t seed = 0;         // of dropout
  bool training = true;      // dropout and batch statistics are on
  bool recomputing = false;  // this forward is a repetition: running statistics stay as they are
  // backward starts with loss_scale * d(sum of the samples' losses).
  double loss_scale = 1;
  // Set by the last unit's forward: the sum of losses in nats over `targets`, in double precision,
  // in order; for classifiers how many were right.
  double loss_sum = 0;
  int64_t correct = 0;
  // Put-off work of backward_weight, in order; only if `split`.
  bool split = false;
  std::vector<std::function<void()>> weight_work;

  // backward_weight of a module whose `saved` is complete: now, or later if passes are split.
  template <typename Work>
  void finish(Work&& work) {
    if (split) {
      weight_work.emplace_back(std::forward<Work>(work));
    } else {
      work();
    }
  }
};

}  // namespace tutti::training
