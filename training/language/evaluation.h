// How well a language model predicts a whole text.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "training/models/decoder.h"

namespace tutti::training {

// Tokens that are read a piece at a time; those that are not to be predicted are marked
// (data/token_file.h).
struct TokenReader {
  uint64_t size = 0;
  std::function<void(uint64_t first, std::span<int32_t> tokens)> read;
};

struct TextLoss {
  double sum = 0;       // in nats
  int64_t targets = 0;  // that were predicted
  int64_t correct = 0;  // that were the likeliest

  double mean() const { return targets == 0 ? 0 : sum / static_cast<double>(targets); }
};

// Windows of the model's context tile the text; the last one may be shorter. Each token but the
// first is predicted once, from those before it in its window. Of these windows every `ranks`-th
// from `rank` on is this rank's. The model's values are in memory.
TextLoss evaluate_text(Decoder& model, DType dtype, const TokenReader& tokens, int rank, int ranks);

}  // namespace tutti::training
