// Runs a model's units by hand: one micro-batch after another, on one rank.
#pragma once

#include <cstdint>
#include <vector>

#include "training/core/model.h"

namespace tutti::training::testing {

// Random tokens and targets of a language model; owns the data that the micro-batch refers to.
struct TokenBatch {
  // Sample i is a function of first_sample + i.
  TokenBatch(int64_t samples, int64_t context, int64_t vocabulary, uint64_t first_sample = 0);
  TokenBatch(const TokenBatch&) = delete;
  TokenBatch& operator=(const TokenBatch&) = delete;

  std::vector<int32_t> tokens, targets;
  MicroBatch micro_batch;
};

// Runs all units; returns the logits. The units save into the pass's arena.
Tensor forward(Model& model, Pass& pass);
// Runs the backward pass of this pass's forward; deferred work stays in the pass.
void backward(Model& model, Pass& pass);
void finish_weights(Pass& pass);

}  // namespace tutti::training::testing
