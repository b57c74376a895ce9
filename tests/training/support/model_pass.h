// Runs a model's units by hand: one micro-batch after another, on one rank.
#pragma once

#include <cstdint>
#include <vector>

#include "training/core/model.h"

namespace tutti::training::testing {

// Random tokens and targets of a language model. Owns the memory to which `micro_batch` refers.
struct TokenBatch {
  // The content of sample i is a function of first_sample + i.
  TokenBatch(int64_t samples, int64_t context, int64_t vocabulary, uint64_t first_sample = 0);
  TokenBatch(const TokenBatch&) = delete;
  TokenBatch& operator=(const TokenBatch&) = delete;

  std::vector<int32_t> tokens, targets;
  MicroBatch micro_batch;
};

// Runs all units forward, and returns the logits. The units save tensors in the pass's arena.
Tensor forward(Model& model, Pass& pass);
// Runs the backward pass of the last forward(). Work that units defer remains in the pass, until
// finish_weights().
void backward(Model& model, Pass& pass);
void finish_weights(Pass& pass);

}  // namespace tutti::training::testing
