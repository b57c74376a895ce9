// Text from a language model, a token at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "training/models/gpt.h"
#include "training/runner.h"

namespace tutti::training {

struct GenerationOptions {
  int64_t tokens = 200;
  double temperature = 1;  // 0: always the likeliest token
  int64_t top_k = 0;       // only the k likeliest tokens; 0: all
  uint64_t seed = 1;
};

// Appends tokens to the prompt, which has at least one, and tells each to `on_token`. The model
// sees the last `context` of them. Its parameters are in memory. The same seed gives the same
// tokens. Throws Error(invalid_argument) for options that make no sense.
void generate(Gpt& model, DType dtype, std::span<const int32_t> prompt,
              const GenerationOptions& options, const std::function<void(int32_t)>& on_token);

}  // namespace tutti::training
