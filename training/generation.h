// Text from a language model, a token at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
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

// The same in text: tells the prompt and what follows it, piece by piece. `tokenizer`: as
// make_tokenizer() takes it; empty: tokens are bytes. Throws Error(invalid_argument) also
// for a tokenizer that is not the model's.
void generate_text(Gpt& model, DType dtype, const std::string& tokenizer, const std::string& prompt,
                   const GenerationOptions& options,
                   const std::function<void(const std::string&)>& on_text);

}  // namespace tutti::training
