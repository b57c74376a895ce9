// Computes the loss of a language model on a whole text.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "training/models/decoder.h"

namespace tutti::training {

// A source from which tokens are read in pieces; tokens that are not targets are marked
// (data/token_file.h).
struct TokenReader {
  uint64_t size = 0;
  std::function<void(uint64_t first, std::span<int32_t> tokens)> read;
};

struct TextLoss {
  double sum = 0;       // sum of the losses in nats
  int64_t targets = 0;  // number of tokens that count as targets
  int64_t correct = 0;  // number of targets with the largest logit

  double mean() const { return targets == 0 ? 0 : sum / static_cast<double>(targets); }
};

// Evaluates windows of the model's context length that tile the text; the last one may be shorter.
// Predicts each token but the first once, from the tokens before it in its window. This rank
// evaluates every `ranks`-th window, starting with window `rank`. The model's values must be in
// memory.
TextLoss evaluate_text(Decoder& model, DType dtype, const TokenReader& tokens, int rank, int ranks);

}  // namespace tutti::training
