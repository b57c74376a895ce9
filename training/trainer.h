// Trains a byte model on a text, data-parallel, from the first step to the validation loss.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "collectives/communicator.h"
#include "training/byte_model.h"
#include "training/text_data.h"

namespace tutti::training {

enum class OptimizerKind { adamw, sgd };

struct TrainOptions {
  ByteModelConfig model;
  int64_t steps = 200;
  int64_t batch = 1536;  // samples per step, over all ranks
  uint64_t seed = 1;
  OptimizerKind optimizer = OptimizerKind::adamw;
  std::optional<float> learning_rate;  // the peak; empty: 0.006 for AdamW, 0.3 for SGD
  int64_t warmup_steps = 10;
  std::optional<float> weight_decay;  // empty: 0.01 for AdamW, 0 for SGD

  // Throws Error(invalid_argument) naming the value that makes no sense.
  void check() const;
};

struct StepReport {
  int64_t step = 0;  // from 1
  double loss = 0;   // mean over the global batch in nats, before the step's update
  std::chrono::nanoseconds elapsed{0};  // since training started
};

struct TrainResult {
  double validation_loss = 0;  // mean over the held-out positions in nats
  int64_t validation_samples = 0;
  double samples_per_second = 0;   // of training, over all ranks
  double communication_share = 0;  // of this rank's training time, waiting for others included
};

// Collective: every rank calls it with the same text and options. The losses are the same on every
// rank, bit for bit; between rank counts they differ by rounding only. `on_step` is called after
// each step, on every rank. Throws Error(mismatch) on all ranks when their texts or options differ,
// and Error(invalid_argument) when the loss stops being a number.
TrainResult train(Communicator communicator, const TextData& text, const TrainOptions& options,
                  const std::function<void(const StepReport&)>& on_step);

}  // namespace tutti::training
